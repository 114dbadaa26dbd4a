#include "lockstep/parallel/strategy/communication_group.h"

#include "lockstep/comm/device_communicator.h"

namespace lockstep::parallel {
namespace {

// Those of the communication thread of every rank and, where ranks divide a worker, those among its
// operations. 0: a rank has its device for itself.
int collectives_at_once(const ParallelOptions& options) {
  if (options.device_ranks == 1) return 0;
  return options.device_ranks * (ranks_per_model(options) > 1 ? 2 : 1);
}

DeviceCommunicatorOptions device_options(const ParallelOptions& options) {
  return {.device = options.device,
          .timeout = options.comm.timeout,
          .backend = options.comm.device_backend,
          .tree_order = options.reduction == Reduction::kTree,
          .measure = options.comm.measure,
          .at_once = collectives_at_once(options)};
}

}  // namespace

std::unique_ptr<Communicator> communication_group(Communicator& world,
                                                  const ParallelOptions& options) {
  std::unique_ptr<Communicator> group = world.split(0, world.rank());
  if (options.device == Device{}) return group;
  return make_device_communicator(std::move(group), device_options(options));
}

std::unique_ptr<Communicator> queued_group(Communicator& world, const ParallelOptions& options,
                                           Queued what) {
  DeviceCommunicatorOptions queued = device_options(options);
  queued.staged = what != Queued::kMessages;
  queued.messages = what != Queued::kCollectives;
  return make_device_communicator(world.split(0, world.rank()), queued);
}

std::unique_ptr<Communicator> host_group(Communicator& world) {
  return world.split(0, world.rank());
}

ExpertDataGroup::ExpertDataGroup(Communicator& world, const ParallelOptions& options) {
  const nn::Sharding workers{.workers = world.size(),
                             .worker = world.rank(),
                             .experts = options.expert,
                             .context = options.context};
  on_host_ = world.split(workers.expert_rank(workers.worker), workers.place_of(true));
  if (options.device == Device{}) return;
  // What it exchanges lies in symmetric memory of all workers, or in none.
  DeviceCommunicatorOptions staged = device_options(options);
  staged.staged = true;
  on_device_ = make_device_communicator(on_host_->split(0, on_host_->rank()), staged);
}

std::uint64_t ExpertDataGroup::bytes_sent() const {
  return on_host_->bytes_sent() + (on_device_ == nullptr ? 0 : on_device_->bytes_sent());
}

std::uint64_t ExpertDataGroup::bytes_across() const {
  const std::uint64_t on_device =
      on_device_ == nullptr ? 0 : on_device_->bytes_across().value_or(0);
  return on_host_->bytes_across().value_or(0) + on_device;
}

std::vector<int> nodes_of_group(const ParallelOptions& options, const WorkerPosition& position,
                                plan::Axes axes) {
  if (options.machines == 1) return {0};
  const plan::Mesh mesh =
      plan::mesh_of(position.workers * ranks_per_worker(options), {.data = 0,
                                                                   .pipeline = options.pipeline,
                                                                   .tensor = options.tensor,
                                                                   .context = options.context,
                                                                   .expert = options.expert});
  const int rank = mesh.rank_of({.data = position.worker / (options.context * options.expert),
                                 .pipeline = options.stage,
                                 .tensor = options.tensor_rank,
                                 .context = options.context_rank,
                                 .expert = options.expert_rank});
  std::vector<int> nodes;
  for (const int one : mesh.group(axes, rank)) {
    nodes.push_back(emulated_node(one, mesh.ranks(), options.machines));
  }
  return nodes;
}

std::size_t device_group_bytes(const ParallelOptions& options, const WorkerPosition& position,
                               plan::Axes axes, bool is_staged, bool has_messages) {
  return device_communicator_bytes(options.comm.device_backend,
                                   nodes_of_group(options, position, axes), is_staged,
                                   has_messages);
}

std::size_t communication_group_bytes(const ParallelOptions& options,
                                      const WorkerPosition& position, const nn::MemoryPlan& plan) {
  if (plan.device == Device{}) return 0;
  // Not in symmetric memory are states and scales that are broadcast at the start, and a block of
  // parameters that is gathered and that its owner sends.
  const nn::Sharding& sharding = plan.sharding;
  const bool by_layer = sharding.partition == nn::Partition::kLayer;
  const nn::Tiers& tiers = plan.tiers;
  const bool in_parameters = plan.setup.dtype == DType::kF32 && tiers.parameters == Tier::kDevice;
  const bool broadcasts =
      !sharding.any() && (tiers.optimizer == Tier::kDevice || in_parameters || plan.setup.fp8);
  // Nor is the memory where parameters of the host are gathered.
  const bool comes = sharding.parameters && tiers.parameters != Tier::kDevice;
  const bool is_staged = broadcasts || comes || (sharding.parameters && by_layer);
  const std::size_t symmetric = plan.symmetric_layout.bytes;
  const plan::Axes workers{plan::Axis::kData, plan::Axis::kExpert, plan::Axis::kContext};
  return device_group_bytes(options, position, workers, is_staged) +
         symmetric_device_bytes(symmetric) - symmetric;
}

}  // namespace lockstep::parallel
