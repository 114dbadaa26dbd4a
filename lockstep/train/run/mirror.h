// The mirror of a run's states in the memory of its workers (survive.mirror), as a run uses it.
//
//   ShardMirror    of workers in lockstep (train/run/shard_mirror.h)
//   DriftMirror    of parameter servers whose workers do not wait for each other
//                  (train/run/drift_mirror.h)
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/train/run/kept_shards.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

class Mirror {
 public:
  virtual ~Mirror() = default;

  // Called by all workers after a step, when the one before is mirrored: the states are those of
  // `settled`. They must not change before wait() has returned.
  virtual void begin(const Trainer::Settled& /*settled*/) {}
  // Returns when that is mirrored. Throws what a Communicator throws.
  virtual void wait() {}
  // Called by all workers when their steps are done: nothing is mirrored any more.
  virtual void finish() { wait(); }
  // Called by all workers between two steps: waits as wait(), and compares every shard with its
  // mirror. Throws Error(kMismatch), with both ranks, where they differ.
  virtual void compare() {}

  // After the loss of workers: what this one has kept. `settled` is what the trainer has, if that
  // is known. Nothing but the destructor may follow.
  virtual KeptShards take(const std::optional<Trainer::Settled>& settled) = 0;

  // What it has allocated, as train/memory/mirror_memory.h plans it.
  virtual std::size_t bytes() const = 0;
};

// Called by all workers of `world`. Both outlive it.
std::unique_ptr<Mirror> make_mirror(Communicator& world, Trainer& trainer);

// The holder of each worker, from the node of each.
std::vector<int> mirror_holders(std::span<const int> machines);
// Returns when all of them have ended, so that their memory may be used for something else, and
// throws what the first of them has thrown.
void wait_for_all(const std::vector<Work>& works);

}  // namespace lockstep::train
