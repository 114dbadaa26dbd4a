// Redundant computation of a sample of an update (ZeRO): the holder of a mirror computes again what
// its ward has made of a part of its shard, from the same inputs, and compares the bits. A mirror
// alone would copy what a faulty CPU has computed.
//
//   ward     states of 41 | gradients of 42 | update | states of 42
//   holder   mirror of 41 | the sample's, sent by the ward | update of a copy = mirror of 42?
//
// The sample is a range of at most kSampleElements elements of one block, another one each time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

inline constexpr std::size_t kSampleElements = std::size_t{1} << 16;

// The ward's shard, packed (train/run/mirrored_states.h), before a step and after it.
struct MirroredUpdate {
  std::span<const std::byte> before;
  std::span<const std::byte> after;
  const Trainer::Settled& made;  // by that step, which was not skipped
};

// Called by all workers of `group` after that step, before gradients change. `number` counts the
// samples. Returns the block whose update by the ward differs.
std::optional<std::size_t> differing_update(Communicator& group, Trainer& trainer, int holder,
                                            int ward, const MirroredUpdate& update,
                                            std::uint64_t number);

}  // namespace lockstep::train
