#include "lockstep/plan/pipeline/batch_part.h"

namespace lockstep::plan {

std::vector<Action> batch_part(const PipelineKind& kind, PipelineShape shape, int stage,
                               BatchPlace place) {
  const int batch = place.follows ? 1 : 0;
  shape.batches = batch + (place.is_followed ? 2 : 1);
  const StepSchedule schedule = make_step_schedule(kind, shape);
  std::vector<Action> part;
  int updates = 0;
  for (Action action : schedule.stages.at(static_cast<std::size_t>(stage))) {
    const bool is_update = action.kind == ActionKind::kUpdate;
    if (updates == batch) {
      action.micro_batch -= batch * shape.micro_batches;
      part.push_back(action);
    }
    updates += is_update ? 1 : 0;
  }
  return part;
}

}  // namespace lockstep::plan
