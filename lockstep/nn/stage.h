// Cuts a model into the stages of a pipeline (nn/model.h).
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/nn/model.h"
#include "lockstep/plan/pipeline/step_schedule.h"

namespace lockstep::nn {

// A cut of a model into virtual stages (plan/pipeline/step_schedule.h).
struct Cut {
  plan::PipelineShape shape;
  std::vector<int> blocks;    // of every virtual stage
  std::vector<double> flops;  // of forward and backward of a micro-batch on every stage
};

// The cut whose largest virtual stage has as few FLOPs as possible (plan/pipeline/balance.h).
// Throws Error(kInvalidArgument) for more virtual stages than blocks. Ranks of a tensor group must
// cut alike, so `whole` is the undivided model.
Cut balanced_cut(const Model& whole, const Setup& setup, const Ops& ops,
                 const plan::PipelineShape& shape);

// The part of a model, divided by a tensor group or not, that stage `stage` has: chunk c of it is
// virtual stage c * stages + stage.
Model stage_of(const Model& whole, const Setup& setup, const Ops& ops, const Cut& cut, int stage);

// Bytes that a rank of a stage sends to other stages in forward and backward of a micro-batch:
// [tokens, hidden] at either end of a chunk, and behind an encoder its memory as well.
std::uint64_t message_bytes(const Model& stage, const Setup& setup);

}  // namespace lockstep::nn
