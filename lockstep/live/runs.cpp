#include "lockstep/live/runs.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/live/small_file.h"
#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/observe/run_record.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::live {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBytesAtOnce = std::size_t{8} << 20;
constexpr auto kBetweenPolls = std::chrono::milliseconds(500);
constexpr int kPollsBetweenLooks = 8;
constexpr int kLevels = 2;
constexpr std::size_t kMostEntries = 20'000;  // of folders that are looked at

bool has_run(const fs::path& folder) {
  return stamp_of(train::metrics_path(folder)) != FileStamp{} ||
         stamp_of(train::facts_path(folder)) != FileStamp{} || train::RunFolder::is_run(folder);
}

struct FoundRun {
  fs::path folder;
  std::int64_t changed_ns = 0;
};

void find_runs(const fs::path& folder, int levels, std::size_t& entries,
               std::vector<FoundRun>& found) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    if (++entries > kMostEntries) return;
    std::error_code none;
    if (!at->is_directory(none)) continue;
    if (has_run(at->path())) {
      found.push_back({at->path(), std::max(stamp_of(train::metrics_path(at->path())).changed_ns,
                                            stamp_of(train::facts_path(at->path())).changed_ns)});
    } else if (levels > 1) {
      find_runs(at->path(), levels - 1, entries, found);
    }
  }
}

}  // namespace

Runs::Runs(const fs::path& path, Kind kind) : path_(fs::absolute(path).lexically_normal()) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  std::error_code none;
  if (kind == Kind::kAny && !fs::is_directory(path_, none)) {
    fail(ErrorCode::kInvalidArgument,
         "{} is no folder; give the folder of a run (run.dir), or one with runs in it",
         path.string());
  }
  is_one_run_ = kind == Kind::kRunToCome || has_run(path_);
  if (is_one_run_) {
    runs_.push_back(std::make_shared<RunFollower>(path_.filename().string(), path_));
    return;
  }
  look_for_runs();
  if (runs_.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "{} is no folder of a run, and there is none in it: a run has metrics.jsonl. Start the "
         "run first, or give the folder that run.dir names",
         path.string());
  }
}

Runs::~Runs() {
  stop();
  if (thread_.joinable()) thread_.join();
}

Runs::List Runs::all() const {
  const std::lock_guard lock(mutex_);
  return runs_;
}

std::shared_ptr<RunFollower> Runs::find(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(runs_, id, [](const auto& run) { return run->id(); });
  return found == runs_.end() ? nullptr : *found;
}

void Runs::look_for_runs() {
  if (is_one_run_) return;
  std::size_t entries = 0;
  std::vector<FoundRun> found;
  find_runs(path_, kLevels, entries, found);
  std::ranges::stable_sort(found, std::greater<>(), &FoundRun::changed_ns);
  const std::lock_guard lock(mutex_);
  List added;
  for (const FoundRun& one : found) {
    if (runs_.size() + added.size() >= kMostRuns) break;
    const std::string id = one.folder.lexically_relative(path_).string();
    const bool known = std::ranges::any_of(runs_, [&](const auto& run) { return run->id() == id; });
    if (!known) added.push_back(std::make_shared<RunFollower>(id, one.folder));
  }
  runs_.insert(runs_.begin(), added.begin(), added.end());
}

bool Runs::poll_all() {
  bool more = false;
  for (const auto& run : all()) {
    more |= run->poll(kBytesAtOnce);
    const std::lock_guard lock(mutex_);
    if (stopped_) return false;
  }
  const std::lock_guard lock(mutex_);
  ++version_;
  changed_.notify_all();
  return more;
}

void Runs::catch_up() {
  look_for_runs();
  while (poll_all()) {
  }
}

void Runs::follow() {
  thread_ = std::thread([this] {
    for (int polls = 1;; ++polls) {
      if (polls % kPollsBetweenLooks == 0) look_for_runs();
      const bool more = poll_all();
      std::unique_lock lock(mutex_);
      if (stopped_) return;
      if (!more) changed_.wait_for(lock, kBetweenPolls, [this] { return stopped_; });
      if (stopped_) return;
    }
  });
}

std::uint64_t Runs::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

bool Runs::wait(std::uint64_t seen) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kBetweenPolls, [&] { return stopped_ || version_ != seen; });
  return !stopped_;
}

void Runs::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace lockstep::live
