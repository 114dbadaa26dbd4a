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
    try {
      file_.append(scalars_record(seconds_since_1970(), metrics.step, scalars));
    } catch (const Error& error) {
      log_warn("{}; the run continues without event files from step {} on", error.what(),
               metrics.step);
      file_ = AppendFile();
    }
  }

  void sample(std::int64_t, const std::string&) override {}
  void notice(const std::string&) override {}
  void warning(const std::string&) override {}
  void end(const RunEnd&) override { file_ = AppendFile(); }

 private:
  AppendFile file_;
  std::int64_t first_step_ = 1;
};

}  // namespace

std::unique_ptr<RunObserver> make_event_file() { return std::make_unique<EventFile>(); }

}  // namespace lockstep::train
