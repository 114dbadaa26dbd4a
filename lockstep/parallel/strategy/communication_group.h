// The communicator of what workers exchange during a step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/worker_position.h"
#include "lockstep/plan/mesh/mesh.h"

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

// The expert data group: the workers that hold the same experts as this one (nn/expert_group.h).
class ExpertDataGroup {
 public:
  // Called by all workers.
  ExpertDataGroup(Communicator& world, const ParallelOptions& options);

  // Over the memory of the host, or of options.device.
  Communicator& of(Device device) const { return device == Device{} ? *on_host_ : *on_device_; }
  std::uint64_t bytes_sent() const;
  std::uint64_t bytes_across() const;

 private:
  std::unique_ptr<Communicator> on_host_;
  std::unique_ptr<Communicator> on_device_;  // beside a GPU
};

// The node of each rank of this rank's group over these axes. Ranks are dealt out to
// options.machines nodes in order.
std::vector<int> nodes_of_group(const ParallelOptions& options, const WorkerPosition& position,
                                plan::Axes axes);
// The memory that a communicator of such a group takes on a GPU (comm/device_communicator.h).
std::size_t device_group_bytes(const ParallelOptions& options, const WorkerPosition& position,
                               plan::Axes axes, bool is_staged, bool has_messages = false);

// The memory that communication_group() takes on the device of a plan, besides its symmetric
// memory; that of an ExpertDataGroup is one staged communicator.
std::size_t communication_group_bytes(const ParallelOptions& options,
                                      const WorkerPosition& position, const nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
