#include "lockstep/train/checkpoint/save_under_way.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/checkpoint/manifest.h"

namespace lockstep::train {
namespace {

// What a worker reports about its file; empty while it is still writing.
constexpr char kDone = '+';
constexpr char kFailed = '-';

std::string told(const std::optional<Error>& failure, std::string_view done) {
  return failure ? fmt::format("{}{}", kFailed, failure->what()) : fmt::format("{}{}", kDone, done);
}

// The first that failed, with its rank unless all say the same.
std::optional<std::string> failure_of(const std::vector<std::string>& all) {
  const auto failed =
      std::ranges::find_if(all, [](const std::string& one) { return one.starts_with(kFailed); });
  if (failed == all.end()) return std::nullopt;
  const std::string what = failed->substr(1);
  const bool everybody = std::ranges::all_of(all, [&](const auto& one) { return one == *failed; });
  return everybody ? what : fmt::format("rank {}: {}", failed - all.begin(), what);
}

}  // namespace

SaveUnderWay::SaveUnderWay(Job job) : job_(std::move(job)), reading_(job_.strategy.trace()) {
  ResidualExchange residuals(job_.group, job_.strategy, job_.replica.flat().elements());
  is_agreed_ = shares_states() || residuals.any();
  if (shares_states()) {
    if (residuals.any()) {
      fail(ErrorCode::kUnsupported, "residuals are not saved with sharded states");
    }
    checkpoint_.emplace(job_.folder, job_.extras.state.steps, job_.group);
  } else if (residuals.any()) {
    take_residuals(residuals);
  } else if (job_.group.leads()) {
    checkpoint_.emplace(job_.folder, job_.extras.state.steps);
  }
  commits_ = !shares_states();
  if (!checkpoint_) return;
  thread_.emplace([this] { shares_states() ? write_states() : write_alone(); });
  job_.replica.set_reader(&reading_);
}

SaveUnderWay::~SaveUnderWay() {
  if (!commits_) reading_.give_up();
  if (thread_) thread_->wait();
  if (checkpoint_) job_.replica.set_reader(nullptr);
}

// The leader's failure must not leave the others with theirs.
void SaveUnderWay::take_residuals(ResidualExchange& residuals) {
  std::optional<Error> failure;
  if (job_.group.leads()) {
    try {
      checkpoint_.emplace(job_.folder, job_.extras.state.steps);
      residuals_ = residuals.write(checkpoint_->path() / kResidualsFile);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kSystem) throw;
      failure = error;
    }
  } else {
    residuals.give();
  }
  const bool taken = residuals.settle(!failure);
  if (failure) throw *failure;
  if (!taken) fail(ErrorCode::kSystem, "rank 0 cannot write it");
}

void SaveUnderWay::write_states() {
  try {
    mine_ = checkpoint_->write(
        job_.replica, [this](std::size_t block) { reading_.has_read(block); }, job_.snapshot);
  } catch (...) {
    reading_.end();
    throw;
  }
  reading_.end();
  seconds_ = seconds_since(begin_);
}

void SaveUnderWay::write_alone() {
  write_states();
  commit({mine_});
}

void SaveUnderWay::commit(const std::vector<io::FileHash>& states) {
  std::optional<io::FileHash> residuals;
  if (residuals_) residuals = residuals_->finish();
  checkpoint_->commit(job_.extras, states, residuals);
  seconds_ = seconds_since(begin_);
}

// The report of this worker's thread. Without a thread there is nothing to wait for.
std::string SaveUnderWay::said() const {
  if (!thread_) return told(std::nullopt, "");
  if (!thread_->done()) return "";
  return told(thread_->failure(), packed(mine_));
}

SaveOutcome SaveUnderWay::outcome(std::optional<std::string> failure) const {
  return {.failure = std::move(failure), .seconds = seconds_};
}

std::optional<SaveOutcome> SaveUnderWay::look() {
  const std::vector<std::string> all =
      is_agreed_ ? job_.group.texts(said()) : std::vector<std::string>{said()};
  const auto goes_on = [](const std::string& one) { return one.empty(); };
  if (std::ranges::any_of(all, goes_on)) return std::nullopt;
  const std::optional<std::string> failure = failure_of(all);
  if (failure || commits_) return outcome(failure);
  commits_ = true;
  std::vector<io::FileHash> states;
  for (const std::string& one : all) states.push_back(unpacked_hash(one.substr(1)));
  thread_.reset();
  if (job_.group.leads()) thread_.emplace([this, states] { commit(states); });
  return std::nullopt;
}

SaveOutcome SaveUnderWay::wait() {
  while (true) {
    if (thread_) thread_->wait();
    if (auto done = look()) return *std::move(done);
  }
}

}  // namespace lockstep::train
