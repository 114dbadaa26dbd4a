// The part of a memory plan that lasts: parameters, gradients, optimizer states.
#pragma once

#include "lockstep/nn/memory/plan_requests.h"

namespace lockstep::nn {

// Adds their requests; the sharding and the flat buffer of the plan are known.
void plan_states(const Model& model, MemoryPlan& plan);

}  // namespace lockstep::nn
