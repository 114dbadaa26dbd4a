// What a run will take, before it takes anything; and what to change where that is too much.
#pragma once

#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

// Lays out every byte that one of options.batch.workers of such a run allocates, what its strategy
// takes included. Needs an Ops for what its operations ask for, but no memory. Throws what
// shape_of(), setup_of() and nn::plan_memory() throw.
nn::MemoryPlan plan_run(const TrainOptions& options, const Ops& ops, int worker = 0,
                        nn::Places places = nn::Places::kFound);

// Throws Error(kInvalidArgument) where the plan is over options.memory_limit, or on the device over
// options.device_limit: with both numbers, the largest classes, and the nearest setting that fits
// (train/memory/smaller_run.h); or the least that the run can do with, and a number of workers that
// fit.
void check_limit(const TrainOptions& options, const nn::MemoryPlan& plan, const Ops& ops,
                 int worker = 0);

// Bytes that a plan may take on a GPU: what is free there, without what CUDA itself needs.
std::size_t gpu_budget(Device device);

}  // namespace lockstep::train
