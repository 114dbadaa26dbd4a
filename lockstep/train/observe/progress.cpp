#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/train/observe/observer.h"
#include "lockstep/train/observe/progress_text.h"

namespace lockstep::train {
namespace {

constexpr int kUsualColumns = 80;
constexpr int kAnyColumns = std::numeric_limits<int>::max();
constexpr auto kBetweenDrawings = std::chrono::milliseconds(100);
constexpr auto kBetweenValidationLines = std::chrono::seconds(10);
constexpr std::string_view kEraseToEnd = "\x1b[K";

// One write, so that lines of other processes come before or after it. Errors are ignored: without
// a reader there is nothing to report to.
void write_to_person(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

class PlainProgress : public RunObserver {
 public:
  explicit PlainProgress(const ProgressOptions& options) : options_(options) {}

  void begin(const RunFacts& facts) override {
    meter_.emplace(facts);
    last_.reset();
    steps_ = facts.steps;
    done_ = facts.first_step - 1;
    tell(opening_text(facts));
  }
  void step(const StepRecord& record) override {
    const bool first = !last_;
    last_ = meter_->add(record);
    const bool turn = options_.every > 0 && last_->step % options_.every == 0;
    show(first || turn || last_->step == last_->steps, record.validation_loss.has_value());
  }
  // A short one shows nothing.
  void validating(const ValidationProgress& progress) override {
    const auto now = SteadyClock::now();
    if (progress.done == 0) told_of_validation_ = now;
    if (now - told_of_validation_ < kBetweenValidationLines) return;
    told_of_validation_ = now;
    tell(validation_line(progress, steps_, kAnyColumns) + '\n');
  }
  void sample(std::int64_t step, const std::string& text) override {
    tell(sample_text(step, text));
  }
  void notice(const std::string& text) override { tell(printable(text) + '\n'); }
  void warning(const std::string& text) override { tell("warning: " + printable(text) + '\n'); }
  void end(const RunEnd& end) override { tell(closing_text(end, last_, done_, steps_)); }

 protected:
  // Whole lines, which stay.
  virtual void tell(const std::string& lines) { write_to_person(lines); }
  // last_ is new.
  virtual void show(bool its_turn, bool validated) {
    if (!its_turn && !validated) return;
    Progress shown = *last_;
    if (!validated) shown.validation_loss.reset();  // the line with it stays on the screen
    tell(progress_line(shown) + '\n');
  }

  ProgressOptions options_;
  std::optional<ProgressMeter> meter_;
  std::optional<Progress> last_;
  std::int64_t steps_ = 0;
  std::int64_t done_ = 0;  // before the first step of this start

 private:
  SteadyClock::time_point told_of_validation_;
};

// Keeps one line up to date below all other output. Between two drawings the cursor stands in its
// first column, so that output of other processes overwrites the line instead of being appended to
// it.
class LiveProgress : public PlainProgress {
 public:
  explicit LiveProgress(const ProgressOptions& options) : PlainProgress(options) {
    if (options.path.empty()) return;
    terminal_ = UniqueFd(::open(options.path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  }

  void step(const StepRecord& record) override {
    validation_.reset();
    PlainProgress::step(record);
  }
  void validating(const ValidationProgress& progress) override {
    validation_ = progress;
    draw_if_due(progress.done == 0);
  }
  void end(const RunEnd& end) override {
    std::string text;
    validation_.reset();
    if (last_ && last_in_sight_) text = drawing() + '\n';
    last_in_sight_ = false;
    write_to_person(text + closing_text(end, last_, done_, steps_));
  }

 protected:
  void tell(const std::string& lines) override {
    std::string text;
    if (last_in_sight_) text = fmt::format("\r{}", kEraseToEnd);
    text += lines;
    if (last_in_sight_) text += drawing() + '\r';
    write_to_person(text);
  }

  void show(bool, bool validated) override {
    // A line with a validation loss stays on the screen.
    if (validated) tell(progress_line(*last_) + '\n');
    // Nothing comes behind that of the last step.
    if (validated && last_->step == last_->steps) {
      write_to_person(fmt::format("\r{}", kEraseToEnd));
      last_in_sight_ = false;
      return;
    }
    draw_if_due(last_->step == last_->steps);
  }

 private:
  void draw_if_due(bool at_once) {
    const auto now = SteadyClock::now();
    if (!at_once && last_in_sight_ && now - drawn_ < kBetweenDrawings) return;
    drawn_ = now;
    last_in_sight_ = true;
    write_to_person(drawing() + '\r');
  }
  std::string drawing() const {
    // A character in the last column makes some terminals begin a line.
    const int width = columns() - 1;
    return fmt::format(
        "\r{}{}",
        validation_ ? validation_line(*validation_, steps_, width) : progress_line(*last_, width),
        kEraseToEnd);
  }
  int columns() const {
    if (options_.columns > 0) return options_.columns;
    winsize size = {};
    const int fd = terminal_ ? terminal_.get() : STDERR_FILENO;
    const bool known = ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : kUsualColumns;
  }

  UniqueFd terminal_;  // where it is not standard error
  bool last_in_sight_ = false;
  std::optional<ValidationProgress> validation_;  // that is running
  SteadyClock::time_point drawn_;
};

}  // namespace

std::unique_ptr<RunObserver> make_progress(const ProgressOptions& options) {
  if (options.terminal) return std::make_unique<LiveProgress>(options);
  return std::make_unique<PlainProgress>(options);
}

}  // namespace lockstep::train
