// Losses on a GPU, each with its gradient in the same pass; of shards of logits, in a pass of its
// own.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

// A target outside the classes is recorded in context.faults, and its row counts as one without a
// target.
void run(const Context& context, const ops::CrossEntropy& call);
void run(const Context& context, const ops::LogitStatistics& call);
void run(const Context& context, const ops::SquaredError& call);
// With all_classes.
void run_shard(const Context& context, const ops::CrossEntropy& call);

}  // namespace lockstep::cuda
