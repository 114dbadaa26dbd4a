// Mirrors the shards of workers (ZeRO) in each other's memory, so that a job outlives the loss of a
// worker (survive.mirror).
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
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/trace/trace.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/train/run/kept_shards.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

// The holder of each worker, from the node of each.
std::vector<int> mirror_holders(std::span<const int> machines);

class ShardMirror {
 public:
  // Called by all workers of `world`. All of them outlive it.
  ShardMirror(Communicator& world, nn::Replica& replica, parallel::Trace& trace);
  // Ends a mirror that is under way, on all workers.
  ~ShardMirror();
  ShardMirror(const ShardMirror&) = delete;
  ShardMirror& operator=(const ShardMirror&) = delete;

  // Called by all workers after a step, when the one before is mirrored: the states are those of
  // `settled`. They must not change before wait() has returned.
  void begin(const Trainer::Settled& settled);
  // Returns when that is mirrored. Throws what a Communicator throws.
  void wait();

  // After the loss of workers: what this one has kept. `settled` is what its replica has, if that
  // is known. Nothing but the destructor may follow.
  KeptShards take(const std::optional<Trainer::Settled>& settled);

  int holder() const { return holder_; }
  int ward() const { return ward_; }
  // What it has allocated, as train/memory/mirror_memory.h plans it.
  std::size_t bytes() const;

 private:
  struct Slot {
    std::optional<Trainer::Settled> of;  // nothing: it is not complete
    Buffer bytes;
  };

  std::uint64_t mirror(const Trainer::Settled& settled);
  void exchange(const Slot& into);

  nn::Replica& replica_;
  parallel::Trace& trace_;
  std::unique_ptr<Communicator> group_;  // of the thread
  int holder_ = 0;
  int ward_ = 0;
  Slot copy_;                             // of this worker's shard
  std::array<Slot, 2> mirrored_;          // of the ward's
  std::size_t newest_ = 0;                // of these
  parallel::CommunicationThread thread_;  // declared last, to end before what its tasks use
};

}  // namespace lockstep::train
