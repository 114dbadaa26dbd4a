// What the worker of a run keeps for the next generation of its job: see train/run/survival.h.
#pragma once

#include "lockstep/train/run/mirror.h"
#include "lockstep/train/run/survival.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

// Decides whether the workers of a run keep states. `survival` is nullptr for a worker that does
// not outlive the loss of others.
void decide_to_keep(Survival* survival, Trainer& trainer);

// Copies the states of a worker that has lost others, or regroups. Whether it can go on with them.
bool keep(Survival* survival, Trainer& trainer, Mirror* mirror);

}  // namespace lockstep::train
