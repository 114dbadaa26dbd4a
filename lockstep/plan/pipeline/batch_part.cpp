#include "lockstep/plan/pipeline/batch_part.h"

#include <algorithm>

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

std::size_t actions_before_next(const PipelineShape& shape, const std::vector<Action>& part) {
  const auto next = std::ranges::find_if(
      part, [&](const Action& action) { return action.micro_batch >= shape.micro_batches; });
  return static_cast<std::size_t>(next - part.begin());
}

}  // namespace lockstep::plan
