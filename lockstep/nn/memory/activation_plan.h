// The part of a memory plan that micro-batches use: activations, what blocks hand to each other and
// to other stages, workspaces.
#pragma once

#include "lockstep/nn/memory/plan_requests.h"

namespace lockstep::nn {

// Adds their requests; the pools of the plan are known.
void plan_activations(const Model& model, MemoryPlan& plan);

}  // namespace lockstep::nn
