// What a run will take, before it takes anything; and what to change where that is too much.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/nn/memory_plan.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

// Lays out every byte that one of options.batch.workers of such a run allocates, what its strategy
// takes included. Needs an Ops for what its operations ask for, but no memory. Throws what
// shape_of(), setup_of() and nn::plan_memory() throw.
nn::MemoryPlan plan_run(const TrainOptions& options, const Ops& ops, int worker = 0);

// Settings of the same training that take less memory, and what they take.
struct SmallerRun {
  int zero = 0;
  plan::Recompute recompute = plan::Recompute::kNone;
  BatchChoice batch;
  GradientChoice gradients = GradientChoice::kAuto;
  std::size_t bytes = 0;
};

// The first of these that fits into `limit` bytes: with the micro-batch there is, higher stages of
// ZeRO where there are workers to share with, then recomputation selective and full with all of
// these; then the same with ever smaller micro-batches and more accumulation, so that a step keeps
// its sequences; then all of these with gradients in the compute type. Nothing where none does.
std::optional<SmallerRun> nearest_fit(const TrainOptions& options, const Ops& ops,
                                      std::size_t limit, int worker = 0);

// Throws Error(kInvalidArgument) where the plan is over options.memory_limit: with both numbers,
// the largest classes, and the nearest setting that fits or the least that the run can do with.
void check_limit(const TrainOptions& options, const nn::MemoryPlan& plan, const Ops& ops,
                 int worker = 0);

}  // namespace lockstep::train
