// Plans the memory of a run, and suggests changes if it exceeds a limit.
#pragma once

#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

// Lays out every byte that one of options.batch.workers of such a run allocates, including its
// strategy. Needs an Ops for the sizes of workspaces, but allocates nothing. Throws what
// shape_of(), setup_of() and nn::plan_memory() throw.
nn::MemoryPlan plan_run(const TrainOptions& options, const Ops& ops, int worker = 0,
                        nn::Places places = nn::Places::kFound);

// Throws Error(kInvalidArgument) if the plan exceeds options.memory_limit, or on the device
// options.device_limit: with both numbers, the largest classes, and the nearest setting that fits
// (train/memory/smaller_run.h), or the minimum and a number of workers that fits.
void check_limit(const TrainOptions& options, const nn::MemoryPlan& plan, const Ops& ops,
                 int worker = 0);

// Bytes that a plan may take on a GPU: what is free there, without what CUDA itself needs.
std::size_t gpu_budget(Device device);

}  // namespace lockstep::train
