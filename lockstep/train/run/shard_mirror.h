// Mirrors the shards of workers in each other's memory, so that a job outlives the loss of a worker
// (survive.mirror): shards of ZeRO, and slices of parameter servers (train/run/mirrored_states.h).
//
// Workers form a ring; neighbours are on different nodes where there are several. A worker sends
// its shard to the next one, its *holder*, and holds the shard of the one before, its *ward*. It
// does so after every step, beside the computation of the next one, which does not change states:
//
//   compute    | step 41 | forward and backward of 42                    | update | ...
//   mirror               | send 41, receive 41 | barrier | copy mine, 41 |
//
// An update waits for the mirror of the step before it. A received shard goes into the older of two
// *slots*, so a worker that dies in the middle leaves the shard of the step before. Then the others
// return to that step too. They need their own shards of it: the copy, which is of the step before
// until the barrier says that every holder has received. So at any moment there is a step of which
// all workers have their shards, and the holder of any worker has its shard
// (train/run/kept_shards.h).
//
// A parameter server updates its slices in its own time, which the mirror waits for. It does not
// begin the next update before, since a worker asks for that only after wait():
//
//   server     | update 41 |                                             | update 42 | ...
//   mirror        wait for | send 41, receive 41 | barrier | copy mine, 41 |
//
// A mirror is a second copy of a shard, bit by bit: compare() finds damaged memory in either. With
// ZeRO it also computes a sample of the step's update again (train/run/recomputed_update.h).
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/trace/trace.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/train/run/kept_shards.h"
#include "lockstep/train/run/mirror.h"
#include "lockstep/train/run/mirrored_states.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

class ShardMirror final : public Mirror {
 public:
  // Called by all workers of `world`. Both outlive it.
  ShardMirror(Communicator& world, Trainer& trainer);
  // Ends a mirror that is under way, on all workers.
  ~ShardMirror() override;
  ShardMirror(const ShardMirror&) = delete;
  ShardMirror& operator=(const ShardMirror&) = delete;

  void begin(const Trainer::Settled& settled) override;
  void wait() override;
  void compare() override;
  KeptShards take(const std::optional<Trainer::Settled>& settled) override;
  std::size_t bytes() const override;

  int holder() const { return holder_; }
  int ward() const { return ward_; }

 private:
  struct Slot {
    std::optional<Trainer::Settled> of;  // nothing: it is not complete
    Buffer bytes;
  };

  std::uint64_t mirror(const Trainer::Settled& settled);
  void exchange(const Slot& into);
  void end();
  void compare_copies();
  void compare_updates();

  Trainer& trainer_;
  std::unique_ptr<MirroredStates> states_;
  parallel::Trace& trace_;
  std::unique_ptr<Communicator> group_;  // of the thread
  int holder_ = 0;
  int ward_ = 0;
  Slot copy_;                             // of this worker's shard
  std::array<Slot, 2> mirrored_;          // of the ward's
  std::size_t newest_ = 0;                // of these
  std::uint64_t samples_ = 0;             // of updates
  parallel::CommunicationThread thread_;  // declared last, to end before what its tasks use
};

}  // namespace lockstep::train
