// The communicator of what workers exchange during a step.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/parallel/strategy/options.h"

namespace lockstep::parallel {

// Of the same ranks as `world`, over the memory of options.device. Called by all of them.
std::unique_ptr<Communicator> communication_group(Communicator& world,
                                                  const ParallelOptions& options);
// The same for what the ranks of one worker exchange among the operations of options.device, which
// lies anywhere there: collectives, messages, or both.
enum class Queued : std::uint8_t { kCollectives, kMessages, kBoth };
std::unique_ptr<Communicator> queued_group(Communicator& world, const ParallelOptions& options,
                                           Queued what);

// The same over the memory of the host: beside a GPU, of what lies there unsharded.
std::unique_ptr<Communicator> host_group(Communicator& world);

// The expert data group: the workers that hold the same experts as this one (nn/expert_group.h), on
// the host; nullptr without expert groups. Called by all workers.
std::unique_ptr<Communicator> expert_data_group(Communicator& world,
                                                const ParallelOptions& options);

// The memory that communication_group() takes on the device of a plan, besides its symmetric
// memory.
std::size_t communication_group_bytes(const nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
