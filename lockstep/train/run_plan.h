// What a run will take, before it takes anything; and what to change where that is too much.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/nn/memory_plan.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

// Lays out every byte that one of options.batch.workers of such a run allocates, what its strategy
// takes included. Needs an Ops for what its operations ask for, but no memory. Throws what
// shape_of(), setup_of() and nn::plan_memory() throw.
nn::MemoryPlan plan_run(const TrainOptions& options, const Ops& ops, int worker = 0);

// The same step in micro-batches of the present size and of every smaller one that divides it.
std::vector<BatchChoice> micro_batches(const BatchChoice& batch);

// Where parts of a replica lie now, and then ever more of them on the host (the optimizer,
// gradients, parameters, activations) where the device has a limit.
std::vector<nn::Tiers> tier_choices(const TrainOptions& options);

// Whether a run with these would not be refused for settings that exclude each other.
bool goes_together(const TrainOptions& options);

// Settings of the same training that take less memory, and what they take.
struct SmallerRun {
  int zero = 0;
  RecomputeChoice recompute = RecomputeChoice::kNone;
  BatchChoice batch;
  GradientChoice gradients = GradientChoice::kAuto;
  nn::Tiers tiers;
  std::size_t bytes = 0;
  std::size_t device_bytes = 0;  // of these, on the device
};

// The first of these that fits into `limit` bytes (0: any) and on the device into
// options.device_limit: where that is one, ever more on the host (the optimizer, gradients,
// parameters, activations); with the micro-batch there is, higher stages of
// ZeRO where there are workers to share with, then recomputation selective and full with all of
// these; then the same with ever smaller micro-batches and more accumulation, so that a step keeps
// its sequences; then all of these with gradients in the compute type. Nothing where none does.
std::optional<SmallerRun> nearest_fit(const TrainOptions& options, const Ops& ops,
                                      std::size_t limit, int worker = 0);

// Throws Error(kInvalidArgument) where the plan is over options.memory_limit, or on the device over
// options.device_limit: with both numbers, the largest classes, and the nearest setting that fits;
// or the least that the run can do with, and the number of workers that fit.
void check_limit(const TrainOptions& options, const nn::MemoryPlan& plan, const Ops& ops,
                 int worker = 0);

}  // namespace lockstep::train
