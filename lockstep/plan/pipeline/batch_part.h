// The actions of one batch in a schedule that does not empty the pipeline between batches.
//
// A stage's list is cut behind its updates: a part ends with the update of its batch. Forwards of
// the next batch may come before it, and then the part of the next batch lacks them. So there are
// four parts, by whether a batch *follows* another one and *is followed* by one:
//
//   PipeDream-2BW, 2 stages, 2 micro-batches; a, b, ... are the batches, messages left out
//     stage 0:  Fa0 Fa1 Ba0 Fb0 Ba1 U | Fb1 Bb0 Fc0 Bb1 U | Fc1 Bc0 Bc1 U
//     stage 1:  Fa0 Ba0 Fa1 Ba1 U     | Fb0 Bb0 Fb1 Bb1 U | Fc0 Bc0 Fc1 Bc1 U
//
// The parts of any number of batches, one after the other, are the schedule of that many batches,
// which verify() proves.
#pragma once

#include <vector>

#include "lockstep/plan/pipeline/step_schedule.h"

namespace lockstep::plan {

struct BatchPlace {
  bool follows = false;
  bool is_followed = false;
};

// Micro-batches count from the first one of the batch: those from shape.micro_batches on are of the
// next batch. The shape's batches do not matter. Throws what make_step_schedule() throws.
std::vector<Action> batch_part(const PipelineKind& kind, PipelineShape shape, int stage,
                               BatchPlace place);

}  // namespace lockstep::plan
