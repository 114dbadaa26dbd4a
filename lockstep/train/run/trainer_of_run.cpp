#include "lockstep/train/run/trainer_of_run.h"

#include "lockstep/train/memory/run_plan.h"

namespace lockstep::train {

std::unique_ptr<Trainer> make_trainer(const TrainOptions& options, Ops& ops,
                                      parallel::Strategy& strategy, RunGroup group,
                                      MeshGroups& mesh) {
  const int worker = strategy.in_lockstep() ? strategy.worker() : group.rank();
  group.together([&] { check_limit(options, plan_run(options, ops, worker), ops, worker); });
  std::unique_ptr<Trainer> trainer;
  group.together([&] { trainer = std::make_unique<Trainer>(options, ops, strategy); });
  trainer->set_axes(mesh.tensor(), mesh.pipeline(), mesh.context(), mesh.expert());
  trainer->set_late_axes(mesh.late());
  return trainer;
}

}  // namespace lockstep::train
