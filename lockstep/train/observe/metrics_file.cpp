#include "lockstep/train/observe/metrics_file.h"

#include <fstream>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/file/append_file.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/log.h"
#include "lockstep/train/observe/metrics_line.h"
#include "lockstep/train/observe/step_lines.h"

namespace lockstep::train {
namespace {

class MetricsFile : public RunObserver {
 public:
  void begin(const RunFacts& facts) override {
    with_loss_scale_ = facts.precision == "f16";
    first_step_ = facts.first_step;
    const std::filesystem::path path = metrics_path(facts.folder);
    keep_steps_before(facts.first_step, path, [](const std::string& line) {
      const auto record = parse_metrics_line(line);
      return record ? std::optional(record->metrics.step) : std::nullopt;
    });
    file_ = AppendFile(path);
  }

  void step(const StepRecord& record) override {
    if (!file_) return;
    try {
      const std::string line = metrics_line(record, with_loss_scale_);
      if (record.metrics.step < first_step_) return replace(record.metrics.step, line);
      file_.append(line);
    } catch (const Error& error) {
      log_warn("{}; the run continues without metrics from step {} on", error.what(),
               record.metrics.step);
      file_ = AppendFile();
    }
  }

  void sample(std::int64_t, const std::string&) override {}
  void notice(const std::string&) override {}
  void warning(const std::string&) override {}
  void end(const RunEnd&) override { file_ = AppendFile(); }

 private:
  // Replaces the line of a step; appends it where the file has none.
  void replace(std::int64_t step, const std::string& line) {
    const std::filesystem::path path = file_.path();
    std::ifstream old(path, std::ios::binary);
    std::string text;
    bool found = false;
    for (std::string one; std::getline(old, one);) {
      const auto record = parse_metrics_line(one);
      const bool is_it = record && record->metrics.step == step;
      found = found || is_it;
      text += is_it ? line : one + '\n';
    }
    if (!found) text += line;
    write_file(path, text);
    file_ = AppendFile(path);
  }

  AppendFile file_;
  std::int64_t first_step_ = 1;
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
