// Gradients of parameters that several pipeline stages hold: a token table that the first stage
// reads and the last one ties its logits to (nn/model.h).
#pragma once

#include <cstdint>

#include "lockstep/nn/replica/replica.h"

namespace lockstep::parallel {

// Replaces the gradients of shared blocks by their sums over all holders, with the same bits on all
// of them. Called by all stages when the workers of each have reduced theirs: every worker then has
// the same shard as the worker of that number on the other stages. Nothing without a pipeline.
void add_up_shared_blocks(nn::Replica& replica);
// The same in a copy of the whole flat buffer of gradients, by another axis of the same stages:
// beside computations.
void add_up_shared_blocks(const nn::Replica& replica, nn::PipelineAxis& axis,
                          const Tensor& gradients);

// Bytes that this stage sends for it in a step: of its whole gradients, or of its shards.
std::uint64_t shared_block_bytes(const nn::Model& model, const nn::MemoryPlan& plan);
// The memory on a GPU of the groups that add them up.
std::size_t shared_block_memory(const nn::Model& model, const nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
