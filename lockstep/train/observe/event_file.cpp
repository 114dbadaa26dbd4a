// Event files in <folder>/tensorboard, one for each process that worked on the run:
//
//   events.out.tfevents.<seconds since 1970, ten digits>.<host>.<process>
//
// TensorBoard reads them in the order of their names and forgets what a later one starts again.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/append_file.h"
#include "lockstep/base/log.h"
#include "lockstep/train/observe/event_record.h"
#include "lockstep/train/observe/observer.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kEventPrefix = "events.out.tfevents.";
// Of each block in a run; the reader shows a few hundred.
constexpr std::int64_t kHistograms = 200;
constexpr std::int64_t kLastStamp = 9'999'999'999;  // of ten digits

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The seconds in the name of the last event file of a folder; 0 where there is none.
std::int64_t latest_stamp(const std::filesystem::path& folder) {
  std::int64_t latest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kEventPrefix)) continue;
    std::int64_t stamp = 0;
    std::from_chars(name.data() + kEventPrefix.size(), name.data() + name.size(), stamp);
    if (stamp < kLastStamp) latest = std::max(latest, stamp);
  }
  return latest;
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

// By the names of metrics.jsonl (train/observe/metrics_line.h).
void add_workers(const WorkerCosts& workers, std::vector<Scalar>& scalars) {
  scalars.push_back({"compute_ms", workers.compute_seconds * 1000});
  scalars.push_back({"communication_ms", workers.communication_seconds * 1000});
  scalars.push_back({"exposed_ms", workers.exposed_seconds * 1000});
  scalars.push_back({"exposed_max_ms", workers.longest_exposed_seconds * 1000});
  scalars.push_back({"bytes_sent", static_cast<double>(workers.bytes_sent)});
  if (workers.most_stale != 0) {
    scalars.push_back({"staleness", workers.staleness});
    scalars.push_back({"staleness_max", workers.most_stale});
  }
  if (workers.slowest_rank < 0) return;
  scalars.push_back({"slowest_rank", static_cast<double>(workers.slowest_rank)});
  scalars.push_back({"slowest_ms", workers.slowest_seconds * 1000});
}

// Markdown leaves lines as they are behind four spaces.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char c : text) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

class EventFile : public RunObserver {
 public:
  void begin(const RunFacts& facts) override {
    const std::filesystem::path folder = facts.folder / "tensorboard";
    const double now = seconds_since_1970();
    std::int64_t latest = 0;
    try {
      std::filesystem::create_directory(folder);
      latest = latest_stamp(folder);
    } catch (const std::filesystem::filesystem_error& error) {
      fail_errno(fmt::format("cannot write event files into {}", folder.string()),
                 error.code().value());
    }
    // After all there are, even if the clock was put back or the last began in this second.
    const std::int64_t stamp = std::max(static_cast<std::int64_t>(now), latest + 1);
    file_ = AppendFile(folder /
                       fmt::format("{}{:010}.{}.{}", kEventPrefix, stamp, host_name(), ::getpid()));
    std::string head = version_record(now);
    if (latest > 0) head += restart_record(now, facts.first_step);
    file_.append(head);
    first_step_ = facts.first_step;
    steps_of_histogram_ = std::max<std::int64_t>(facts.steps / kHistograms, 1);
    norms_.clear();
    for (const std::string& block : facts.blocks) norms_.push_back({"grad_norm/" + block, {}});
  }

  void step(const StepRecord& record) override {
    if (!file_) return;
    const StepMetrics& metrics = record.metrics;
    std::vector<Scalar> scalars;
    if (metrics.step >= first_step_) {  // else an earlier file has them
      scalars = {
          {"loss", metrics.loss},
          {"lr", metrics.rate},
          {"tokens_per_s", metrics.tokens_per_second()},
          {"memory_bytes", static_cast<double>(record.memory_bytes)},
      };
      if (metrics.has_norm) scalars.push_back({"grad_norm", metrics.gradient_norm});
      if (record.metrics.ranks > 1) {
        scalars.push_back({"ranks", static_cast<double>(record.metrics.ranks)});
      }
      if (record.workers) add_workers(*record.workers, scalars);
    }
    if (record.validation_loss) scalars.push_back({"val_loss", *record.validation_loss});
    append(metrics.step, scalars_record(seconds_since_1970(), metrics.step, scalars));
    if (metrics.step >= first_step_) add_norms(metrics);
  }

  void sample(std::int64_t step, const std::string& text) override {
    append(step, text_record(seconds_since_1970(), step, "sample", as_code(text)));
  }
  void notice(const std::string&) override {}
  void warning(const std::string&) override {}
  void end(const RunEnd&) override {
    write_norms();
    file_ = AppendFile();
  }

 private:
  void append(std::int64_t step, const std::string& event) {
    if (!file_) return;
    try {
      file_.append(event);
    } catch (const Error& error) {
      log_warn("{}; the run continues without event files from step {} on", error.what(), step);
      file_ = AppendFile();
    }
  }

  void add_norms(const StepMetrics& metrics) {
    if (metrics.skipped || metrics.block_norms.size() != norms_.size()) return;
    for (std::size_t block = 0; block < norms_.size(); ++block) {
      norms_[block].values.push_back(metrics.block_norms[block]);
    }
    last_step_ = metrics.step;
    if (metrics.step % steps_of_histogram_ == 0) write_norms();
  }

  void write_norms() {
    if (norms_.empty() || norms_.front().values.empty()) return;
    append(last_step_, histograms_record(seconds_since_1970(), last_step_, norms_));
    for (Histogram& norm : norms_) norm.values.clear();
  }

  AppendFile file_;
  std::int64_t first_step_ = 1;
  std::int64_t steps_of_histogram_ = 1;
  std::int64_t last_step_ = 0;    // whose norms are in norms_
  std::vector<Histogram> norms_;  // of the gradients of each block, since the last histograms
};

}  // namespace

std::unique_ptr<RunObserver> make_event_file() { return std::make_unique<EventFile>(); }

}  // namespace lockstep::train
