#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/log.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/observe/observer.h"
#include "lockstep/train/observe/report/page.h"

namespace lockstep::train {
namespace {

constexpr std::size_t kMostMessages = 1000;  // that are kept: the first ones
constexpr std::size_t kMostTexts = 1000;     // samples; then every second one goes
constexpr auto kBetweenPages = std::chrono::seconds(30);

class ReportFile : public RunObserver {
 public:
  void begin(const RunFacts& facts) override {
    report_ = {};
    report_.facts = facts;
    report_.began = std::time(nullptr);
    last_step_ = facts.first_step - 1;
    begin_ = SteadyClock::now();
    report_.samples = read_samples(facts.folder, facts.first_step);
    history_.emplace(facts.steps, facts.first_step);
    read_metrics(facts.folder, [&](const StepRecord& record) {
      if (record.metrics.step < facts.first_step) history_->add(record);
    });
    check_can_write(path());
    write_so_far();
  }

  void step(const StepRecord& record) override {
    last_step_ = record.metrics.step;
    if (last_step_ >= report_.facts.first_step) history_->add(record);
    write_if_due();
  }

  void sample(std::int64_t step, const std::string& text) override {
    std::vector<Sample>& samples = report_.samples;
    while (samples.size() >= kMostTexts) {
      const std::size_t half = samples.size() / 2;
      for (std::size_t i = 1; i < half; ++i) samples[i] = std::move(samples[2 * i]);
      samples.resize(half);
    }
    samples.push_back({step, text});
  }

  void validating(const ValidationProgress&) override { write_if_due(); }
  void notice(const std::string& text) override { keep_message("", text); }
  void warning(const std::string& text) override { keep_message("warning: ", text); }

  void end(const RunEnd& end) override {
    report_.running = false;
    report_.end = end;
    report_.ended = std::time(nullptr);
    try {
      const RunFacts& facts = report_.facts;
      report_.history = read_history(facts.folder, facts.steps, facts.first_step).history();
      if (!end.trace.empty()) report_.trace = read_trace(end.trace);
      write_file(path(), report_page(report_));
    } catch (const Error& error) {
      log_warn("{}; this run has no report", error.what());
    }
  }

 private:
  std::filesystem::path path() const { return report_.facts.folder / "report.html"; }

  void keep_message(std::string_view kind, const std::string& text) {
    if (report_.messages.size() >= kMostMessages) return;
    report_.messages.push_back(fmt::format("step {}: {}{}", last_step_, kind, text));
  }

  // What the page says where the process is killed.
  void write_so_far() {
    report_.running = true;
    report_.end = {.seconds = seconds_since(begin_)};
    report_.ended = std::time(nullptr);
    report_.history = history_->history();
    write_file(path(), report_page(report_));
    written_ = SteadyClock::now();
  }

  void write_if_due() {
    if (failed_ || SteadyClock::now() - written_ < kBetweenPages) return;
    try {
      write_so_far();
    } catch (const Error& error) {
      log_warn("{}; the report is written again when the run ends", error.what());
      failed_ = true;
    }
  }

  Report report_;
  std::optional<HistoryBuilder> history_;  // of the events it has received
  std::int64_t last_step_ = 0;
  SteadyClock::time_point begin_;
  SteadyClock::time_point written_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<RunObserver> make_report() { return std::make_unique<ReportFile>(); }

}  // namespace lockstep::train
