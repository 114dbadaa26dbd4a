// The workers of a run and what they have to agree on. Worker 0 leads: it has the run's folder, its
// checkpoints and its audience.
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

// Whether an error ends a run: ranks that are gone, or at odds.
inline bool is_of_ranks(ErrorCode code) {
  return code == ErrorCode::kPeerLost || code == ErrorCode::kTimeout ||
         code == ErrorCode::kAborted || code == ErrorCode::kMismatch;
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
  // Throws Error(kMismatch) at all of them where their settings differ, other than in what may be a
  // machine's own (paths, threads), with the settings and the ranks that differ from rank 0's.
  void check_settings(const Config& config);
  // The same for what was found in the data.
  void check_data(std::string_view fingerprint);
  // What the leader has.
  std::optional<TrainState> from_leader(const std::optional<TrainState>& state);
  // Every worker's.
  std::vector<std::string> texts(const std::string& mine);
  std::vector<double> numbers(std::span<const double> mine);  // one worker's after the other's

  // Does at every worker what needs no other worker. Where it throws at one of them all throw an
  // Error of that code, which names the rank.
  void together(const std::function<void()>& work);
  // The same without throwing: what each worker's said, nothing where it went well.
  std::vector<std::optional<Error>> outcomes(const std::function<void()>& work);

 private:
  Communicator* world_;
};

}  // namespace lockstep::train
