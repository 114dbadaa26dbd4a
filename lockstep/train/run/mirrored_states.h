// What the workers of a run mirror (train/run/shard_mirror.h): each has a part of the states, its
// *shard*.
//
//   ZeRO                a worker's shard of every block
//   parameter servers   the slices of the server in its process; a worker without one has none
//
// A shard is packed as its tensors one after the other: of every block, or of every slice, the
// master copy and the optimizer's states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/parallel/strategy/served_states.h"
#include "lockstep/train/run/kept_shards.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

class MirroredStates {
 public:
  virtual ~MirroredStates() = default;

  // The number of a worker's shard; nothing: it has none.
  virtual std::optional<int> shard_of(int worker) const = 0;
  // The parts of all shards.
  virtual ShardParts parts() const = 0;
  // The elements of each tensor of a worker's shard.
  virtual std::vector<std::size_t> elements_of(int worker) const = 0;
  // What the memory plan has for the packed shard of any worker.
  virtual std::size_t bytes_of(int worker) const = 0;

  // Called after a step: mine() are to be those that it has made. / Waits until they are, on
  // another thread; stop() ends that wait, also later ones. / Whether they are, for certain.
  virtual void begin() {}
  virtual void settle() {}
  virtual void stop() {}
  virtual bool are_settled() { return true; }
  // This worker's shard.
  virtual std::vector<Tensor> mine() = 0;
};

// Of the run's strategy. `trainer` outlives it.
std::unique_ptr<MirroredStates> mirrored_states(Trainer& trainer);

// The packed tensors. / How many bytes these are.
void pack(std::span<const Tensor> tensors, std::span<std::byte> bytes);
std::size_t packed_bytes(std::span<const std::size_t> elements);

}  // namespace lockstep::train
