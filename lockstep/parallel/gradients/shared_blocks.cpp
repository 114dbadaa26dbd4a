#include "lockstep/parallel/gradients/shared_blocks.h"

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

std::uint64_t shared_block_bytes(const nn::Model& model, const nn::MemoryPlan& plan) {
  std::uint64_t bytes = 0;
  for (const nn::SharedBlock& shared : model.shared()) {
    if (shared.block == nn::SharedBlock::kElsewhere) continue;
    const std::size_t elements = plan.sharding.any() ? plan.shards.mine(shared.block).elements
                                                     : plan.flat.range(shared.block).elements;
    bytes += least_bytes_sent(all_reduce(Data(nullptr, elements, plan.setup.gradient)), 0,
                              static_cast<int>(shared.holders.size()));
  }
  return bytes;
}

}  // namespace lockstep::parallel
