// The trainer of a run.
#pragma once

#include <memory>

#include "lockstep/train/run/mesh_groups.h"
#include "lockstep/train/trainer/run_group.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

// If the run does not fit on one worker, all workers report it. Limits are checked first. Then
// workers allocate shared memory, and then their own. All arguments but the group must outlive it.
std::unique_ptr<Trainer> make_trainer(const TrainOptions& options, Ops& ops,
                                      parallel::Strategy& strategy, RunGroup group,
                                      MeshGroups& mesh);

}  // namespace lockstep::train
