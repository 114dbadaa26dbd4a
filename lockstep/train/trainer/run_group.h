// The workers of a run and their agreements. Worker 0 is the leader: it has the run's folder, its
// checkpoints and its observers.
//
// Everything here is called by all workers in the same order; with one worker nothing is sent.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/config/config.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

// Whether ranks have lost each other.
inline bool is_loss_of_ranks(ErrorCode code) {
  return code == ErrorCode::kPeerLost || code == ErrorCode::kTimeout ||
         code == ErrorCode::kAborted || code == ErrorCode::kCorrupted;
}
// Whether an error ends a run: lost or disagreeing ranks.
inline bool is_of_ranks(ErrorCode code) {
  return is_loss_of_ranks(code) || code == ErrorCode::kMismatch;
}

class RunGroup {
 public:
  // nullptr: one worker. `world` outlives it.
  explicit RunGroup(Communicator* world) : world_(world) {}

  int rank() const { return world_ == nullptr ? 0 : world_->rank(); }
  int size() const { return world_ == nullptr ? 1 : world_->size(); }
  bool leads() const { return rank() == 0; }
  Communicator* world() const { return world_; }

  void barrier();
  // Throws Error(kMismatch) on all workers, with the settings and ranks that differ from rank 0, if
  // settings differ, except for paths and threads.
  void check_settings(const Config& config);
  // The same for what was found in the data.
  void check_data(std::string_view fingerprint);
  // What the leader has.
  std::optional<TrainState> from_leader(const std::optional<TrainState>& state);
  // Every worker's.
  std::vector<std::string> texts(const std::string& mine);
  std::vector<double> numbers(std::span<const double> mine);  // one worker's after the other's
  bool any(bool mine);                                        // of all workers

  // Runs local work on every worker. If it throws on one of them, all throw an Error of that code
  // with the rank.
  void together(const std::function<void()>& work);
  // The same without throwing: the error of each worker, if any.
  std::vector<std::optional<Error>> outcomes(const std::function<void()>& work);

 private:
  Communicator* world_;
};

}  // namespace lockstep::train
