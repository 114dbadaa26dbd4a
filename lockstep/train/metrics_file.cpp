#include "lockstep/train/metrics_file.h"

#include <fstream>
#include <string>

#include "lockstep/base/append_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/log.h"
#include "lockstep/train/metrics_line.h"

namespace lockstep::train {
namespace {

// Leaves the steps before `first_step`. What is not ours to read goes too: a reader of the file
// would stumble over it as we did.
void keep_steps_before(std::int64_t first_step, const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return;  // a device or a pipe has no past
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::kSystem, "cannot read {}", path.string());
  std::string kept;
  const auto bytes = std::filesystem::file_size(path, none);
  if (!none) kept.reserve(bytes);
  std::string line;
  bool changed = false;
  std::size_t unreadable = 0;
  while (std::getline(file, line)) {
    const bool torn = file.eof();  // no line's end; whole all the same if it can be read
    const auto record = parse_metrics_line(line);
    if (record && record->metrics.step < first_step) {
      kept += line;
      kept += '\n';
      changed |= torn;
    } else {
      changed = true;
      if (!record && !torn) ++unreadable;
    }
  }
  if (unreadable > 0) {
    log_warn("took {} lines that are no metrics out of {}", unreadable, path.string());
  }
  if (changed) write_file(path, kept);
}

class MetricsFile : public RunObserver {
 public:
  void begin(const RunFacts& facts) override {
    with_loss_scale_ = facts.precision == "f16";
    const std::filesystem::path path = metrics_path(facts.folder);
    keep_steps_before(facts.first_step, path);
    file_ = AppendFile(path);
  }

  void step(const StepRecord& record) override {
    if (!file_) return;
    try {
      file_.append(metrics_line(record, with_loss_scale_));
    } catch (const Error& error) {
      log_warn("{}; the run goes on without its metrics from step {} on", error.what(),
               record.metrics.step);
      file_ = AppendFile();
    }
  }

  void sample(std::int64_t, const std::string&) override {}
  void notice(const std::string&) override {}
  void warning(const std::string&) override {}
  void end(const RunEnd&) override { file_ = AppendFile(); }

 private:
  AppendFile file_;
  bool with_loss_scale_ = false;
};

}  // namespace

std::filesystem::path metrics_path(const std::filesystem::path& folder) {
  return folder / "metrics.jsonl";
}

void read_metrics(const std::filesystem::path& folder,
                  const std::function<void(const StepRecord&)>& visit) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(metrics_path(folder), none)) return;
  std::ifstream file(metrics_path(folder), std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    if (const auto record = parse_metrics_line(line)) visit(*record);
  }
}

std::unique_ptr<RunObserver> make_metrics_file() { return std::make_unique<MetricsFile>(); }

}  // namespace lockstep::train
