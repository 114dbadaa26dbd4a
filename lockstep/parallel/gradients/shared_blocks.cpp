#include "lockstep/parallel/gradients/shared_blocks.h"

#include <algorithm>
#include <map>
#include <vector>

#include "lockstep/comm/device_communicator.h"
#include "lockstep/comm/least_bytes.h"

namespace lockstep::parallel {

void add_up_shared_blocks(nn::Replica& replica) {
  if (replica.pipeline_axis() == nullptr) return;
  replica.ops().synchronize();
  for (const nn::SharedBlock& shared : replica.model().shared()) {
    const bool is_here = shared.block != nn::SharedBlock::kElsewhere;
    replica.pipeline_axis()->sum(is_here ? replica.mine(shared.block).gradients : Tensor(),
                                 shared.holders);
  }
}

void add_up_shared_blocks(const nn::Replica& replica, nn::PipelineAxis& axis,
                          const Tensor& gradients) {
  const nn::States flat{.gradients = gradients};
  for (const nn::SharedBlock& shared : replica.model().shared()) {
    const bool is_here = shared.block != nn::SharedBlock::kElsewhere;
    axis.sum(is_here ? flat.slice(replica.flat().range(shared.block)).gradients : Tensor(),
             shared.holders);
  }
}

namespace {

// Of this stage: the whole, or its shard.
std::size_t elements_of(const nn::SharedBlock& shared, const nn::MemoryPlan& plan) {
  return plan.sharding.any() ? plan.shards.mine(shared.block).elements
                             : plan.flat.range(shared.block).elements;
}

}  // namespace

std::uint64_t shared_block_bytes(const nn::Model& model, const nn::MemoryPlan& plan) {
  std::uint64_t bytes = 0;
  for (const nn::SharedBlock& shared : model.shared()) {
    if (shared.block == nn::SharedBlock::kElsewhere) continue;
    const std::size_t elements = elements_of(shared, plan);
    bytes += least_bytes_sent(all_reduce(Data(nullptr, elements, plan.setup.gradient)), 0,
                              static_cast<int>(shared.holders.size()));
  }
  return bytes;
}

std::size_t shared_block_memory(const nn::Model& model, const nn::MemoryPlan& plan) {
  if (plan.device == Device{}) return 0;
  std::map<std::vector<int>, std::size_t> most;  // bytes of a sum, by the stages of a group
  for (const nn::SharedBlock& shared : model.shared()) {
    if (shared.block == nn::SharedBlock::kElsewhere) continue;
    std::size_t& bytes = most[shared.holders];
    bytes = std::max(bytes, elements_of(shared, plan) * size_of(plan.setup.gradient));
  }
  std::size_t all = 0;
  for (const auto& [holders, bytes] : most) {
    all += device_communicator_bytes(bytes > kSmallAllReduceBytes);
  }
  return all;
}

}  // namespace lockstep::parallel
