// The global gradient norm of a model that tensor groups, expert groups and pipeline stages divide.
//
// Every rank knows the sums of squares of the chunks of its own flat buffer
// (parallel/gradients/gradient_chunks.h). What several ranks hold is counted once: a parameter that
// a tensor group replicates (nn/tensor_shard.h) by the first rank of the group, a copy of another
// stage's block (nn/model.h) by its owner. Sums of stages are added in the order that the flat
// buffer of the whole model has, so pipelines do not change the bits of the norm. The sums of a
// block of experts are those of all ranks of the expert group (nn/expert_group.h).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lockstep/nn/replica/replica.h"

namespace lockstep::parallel {

// The sum of squares of this worker's gradients of replicated parameters, for each block: of all of
// them, or of its shards. read(block, range) returns a range of its gradients of a block, valid
// until the next call. Waits for the operations before it.
std::vector<double> replicated_squares(
    nn::Replica& replica, Ops& ops,
    const std::function<Tensor(std::size_t block, nn::FlatRange range)>& read);

struct ModelNorm {
  double whole = 0;
  std::vector<double> blocks;  // of each block of the whole model; empty: not known
};

// The norms over all ranks of the model, the same on all of them; they call it together. `sums` are
// those of all chunks of this rank's flat buffer, in order. `replicated`, in a tensor group: the
// sum of squares of all replicated parameters of each block. Infinite or NaN if a gradient of any
// rank is.
ModelNorm norm_of_model(const nn::Replica& replica, std::span<const double> sums,
                        std::span<const double> replicated);

// Which communication the ranks of a model agree by; nullptr: there is no such group.
struct NormAxes {
  nn::TensorAxis* tensor = nullptr;
  nn::PipelineAxis* pipeline = nullptr;
  nn::ExpertAxis* experts = nullptr;
};
// The same beside computations, which use the replica's own axes.
ModelNorm norm_of_model(const nn::Replica& replica, const NormAxes& axes,
                        std::span<const double> sums, std::span<const double> replicated);

}  // namespace lockstep::parallel
