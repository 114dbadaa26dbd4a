// What observers receive before the first step.
#pragma once

#include "lockstep/ops/ops.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/observe/observer.h"
#include "lockstep/train/run/resolve.h"
#include "lockstep/train/trainer/run_group.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

struct RunParts {
  const ResolvedRun& resolved;
  Trainer& trainer;
  parallel::Strategy& strategy;
  const Dataset& dataset;
  const BatchSource& source;
  Ops& ops;
  RunGroup group;
};

// All workers call it: they measure the machine's peak at the same time, as they will compute.
RunFacts run_facts(RunParts run);

}  // namespace lockstep::train
