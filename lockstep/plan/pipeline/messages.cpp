#include "lockstep/plan/pipeline/messages.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "lockstep/plan/pipeline/computations.h"
#include "lockstep/plan/pipeline/timetable.h"

namespace lockstep::plan {
namespace {

// An action at its place in the one order of all stages.
struct PlacedAction {
  double time = 0;              // a computation's begin; the time when a message is ready
  bool is_computation = false;  // at the same time messages come first
  int from = 0;                 // the stage that computes or sends
  std::size_t index = 0;        // of the computation in the list of that stage
  Action action;

  auto place() const { return std::tie(time, is_computation, from, index); }
};

StepTimes unit_times(const PipelineShape& shape) {
  const double unit = shape.chunks * shape.slices;
  return {.forward = unit, .backward_input = unit, .backward_weight = unit};
}

bool is_gradient(const Computation& computation) {
  return computation.phase == Phase::kInputGradient;
}

Action send_of(const PipelineShape& shape, const Action& computation, const Computation& result,
               int reader) {
  Action send = computation;
  send.kind = is_gradient(result) ? ActionKind::kSendGradient : ActionKind::kSendActivation;
  send.peer = shape.stage_of(reader);
  send.version = 0;
  return send;
}

Action receive_of(const PipelineShape& shape, int from, const Action& send, int reader) {
  Action receive = send;
  receive.kind = send.kind == ActionKind::kSendGradient ? ActionKind::kReceiveGradient
                                                        : ActionKind::kReceiveActivation;
  receive.chunk = shape.chunk_of(reader);
  receive.peer = from;
  return receive;
}

}  // namespace

void add_messages(StepSchedule& schedule) {
  const PipelineShape& shape = schedule.shape;
  const Timetable table = simulate(schedule, unit_times(shape));
  std::vector<std::vector<PlacedAction>> placed(schedule.stages.size());
  for (int stage = 0; stage < shape.stages; ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    for (std::size_t i = 0; i < schedule.stages[at].size(); ++i) {
      const Action& action = schedule.stages[at][i];
      const ActionSpan span = table.stages[at][i];
      placed[at].push_back({span.begin, true, stage, i, action});
      for (const Computation& result : computed_by(shape, stage, action)) {
        const auto reader = reader_of(shape, result);
        if (!reader || shape.stage_of(*reader) == stage) continue;
        const Action send = send_of(shape, action, result, *reader);
        placed[at].push_back({span.end, false, stage, i, send});
        placed[static_cast<std::size_t>(send.peer)].push_back(
            {span.end, false, stage, i, receive_of(shape, stage, send, *reader)});
      }
    }
  }
  for (std::size_t at = 0; at < placed.size(); ++at) {
    std::ranges::sort(placed[at], {}, &PlacedAction::place);
    schedule.stages[at].clear();
    for (const PlacedAction& each : placed[at]) schedule.stages[at].push_back(each.action);
  }
}

}  // namespace lockstep::plan
