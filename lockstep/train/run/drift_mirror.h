// Mirrors the slices of parameter servers whose workers do not wait for each other (asp, ssp).
//
// Their slices change at any time, and those of different servers are of no common step. So every
// server is mirrored for itself. When its workers have made a step's worth of updates, the server
// copies its slices between two of them. A thread sends the copy to the holder, and receives that
// of the ward into the older of two slots, one after the other:
//
//   server    | updates | copy | updates                 | copy | updates
//   mirror              | send 1, receive 1 |            | send 2, receive 2 |
//
// What is lost with a server is what its mirror lags: a step's worth of updates, and those during
// the transfer. Survivors keep their slices as they are; the run continues after the last step that
// any of them has done. Shares that were under way are lost, or are computed again.
//
// It ends for all when one of them has no more shares to do.
//
// The members of the ring are the ranks with servers. The others keep nothing and hold nothing. The
// loss of any rank ends the generation (StrategyJob::needs_all_workers): a communicator fails as a
// whole, and slices that were not mirrored any more would be lost with the next rank.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/train/run/mirror.h"
#include "lockstep/train/run/mirrored_states.h"

namespace lockstep::train {

class DriftMirror final : public Mirror {
 public:
  // Called by all workers of `world`. Both outlive it.
  DriftMirror(Communicator& world, Trainer& trainer);
  ~DriftMirror() override;
  DriftMirror(const DriftMirror&) = delete;
  DriftMirror& operator=(const DriftMirror&) = delete;

  void finish() override;
  KeptShards take(const std::optional<Trainer::Settled>& settled) override;
  std::size_t bytes() const override;

 private:
  void run();
  bool copy(std::uint64_t rounds);
  void exchange(const Buffer& into);
  void end();

  Trainer& trainer_;
  std::unique_ptr<MirroredStates> states_;
  int worker_ = 0;
  std::unique_ptr<Communicator> group_;  // of the thread; members only
  int holder_ = 0;                       // in the group, as the next
  std::optional<int> ward_;
  Buffer copy_;
  std::array<Buffer, 2> mirrored_;
  std::optional<std::size_t> newest_;  // of these that are complete
  std::atomic<bool> finishes_ = false;
  parallel::CommunicationThread thread_;  // declared last, to end before what it uses
};

}  // namespace lockstep::train
