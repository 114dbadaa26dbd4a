#include "lockstep/plan/pipeline/timetable.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/plan/pipeline/computations.h"

namespace lockstep::plan {
namespace {

// Runs the computations of all stages, each stage in its order.
class StepSimulation {
 public:
  StepSimulation(const StepSchedule& schedule, const StepTimes& times)
      : schedule_(schedule),
        shape_(schedule.shape),
        times_(times),
        results_(computation_count(shape_)),
        position_(schedule.stages.size()),
        free_(schedule.stages.size()) {
    for (const auto& actions : schedule.stages) {
      table_.stages.emplace_back(actions.size());
    }
    table_.busy.resize(schedule.stages.size());
    table_.active.resize(schedule.stages.size());
  }

  Timetable run() {
    while (advance_all(shape_.stages, [this](int stage) { return advance(stage); })) {
    }
    check_ended();
    for (int stage = 0; stage < shape_.stages; ++stage) time_messages(stage);
    table_.end = *std::max_element(free_.begin(), free_.end());
    return std::move(table_);
  }

 private:
  // The result of a computation: when it leaves its stage and when its reader has it.
  struct Result {
    ActionSpan travel;
    bool done = false;
  };

  // Runs the next action of a stage if all that it needs is there.
  bool advance(int stage) {
    const auto at = static_cast<std::size_t>(stage);
    const auto& actions = schedule_.stages[at];
    if (position_[at] == actions.size()) return false;
    const Action& action = actions[position_[at]];
    if (!is_message(action.kind)) {
      double begin = free_[at];
      for (const Computation& need : needed_by(shape_, stage, action)) {
        const Result& result = results_[index_of(shape_, need)];
        if (!result.done) return false;
        begin = std::max(begin, arrival(stage, need, result));
      }
      compute(stage, action, begin);
    }
    ++position_[at];
    return true;
  }

  // A result is on its own stage at once, and on another after its message.
  double arrival(int stage, const Computation& need, const Result& result) const {
    return shape_.stage_of(need.virtual_stage) == stage ? result.travel.begin : result.travel.end;
  }

  void compute(int stage, const Action& action, double begin) {
    const auto at = static_cast<std::size_t>(stage);
    const double duration = times_.of(shape_, action);
    const double end = begin + duration;
    table_.stages[at][position_[at]] = {begin, end};
    if (table_.busy[at] == 0) table_.active[at].begin = begin;
    table_.busy[at] += duration;
    table_.active[at].end = free_[at] = end;
    for (const Computation& computed : computed_by(shape_, stage, action)) {
      results_[index_of(shape_, computed)] = {travel(stage, computed, end), true};
    }
  }

  ActionSpan travel(int stage, const Computation& computed, double ready) {
    const std::optional<int> reader = reader_of(shape_, computed);
    if (!reader || shape_.stage_of(*reader) == stage) return {ready, ready};
    double& channel_free = channels_[{stage, shape_.stage_of(*reader)}];
    const double leaves = std::max(ready, channel_free);
    channel_free = leaves + times_.message;
    // Its own stage may read it from `ready` on; the message is drawn from then on, too.
    return {ready, channel_free};
  }

  void time_messages(int stage) {
    const auto at = static_cast<std::size_t>(stage);
    for (std::size_t i = 0; i < schedule_.stages[at].size(); ++i) {
      const Action& action = schedule_.stages[at][i];
      if (!is_message(action.kind)) continue;
      table_.stages[at][i] = results_[index_of(shape_, carried_by(shape_, stage, action))].travel;
    }
  }

  void check_ended() const {
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const auto at = static_cast<std::size_t>(stage);
      if (position_[at] == schedule_.stages[at].size()) continue;
      fail(ErrorCode::kInvalidArgument,
           "stage {} of schedule {} waits forever: its {} needs what is computed after it", stage,
           schedule_.name, describe(schedule_.stages[at][position_[at]]));
    }
  }

  const StepSchedule& schedule_;
  const PipelineShape& shape_;
  const StepTimes& times_;
  std::vector<Result> results_;
  std::vector<std::size_t> position_;
  std::vector<double> free_;
  std::map<std::pair<int, int>, double> channels_;  // from, to: when the last message has arrived
  Timetable table_;
};

double busiest(const Timetable& table) {
  return *std::max_element(table.busy.begin(), table.busy.end());
}

}  // namespace

double StepTimes::of(const PipelineShape& shape, const Action& action) const {
  const double part =
      (slices.empty() ? 1.0 / shape.slices : slices.at(static_cast<std::size_t>(action.slice))) /
      shape.chunks;
  switch (action.kind) {
    case ActionKind::kForward:
      return forward * part;
    case ActionKind::kBackward:
      return (backward_input + backward_weight) * part;
    case ActionKind::kBackwardInput:
      return backward_input * part;
    case ActionKind::kBackwardWeight:
      return backward_weight * part;
    default:
      return 0;
  }
}

double Timetable::bubble() const { return (end - busiest(*this)) / busiest(*this); }

double Timetable::bubble_without_barrier() const {
  double longest = 0;
  for (const ActionSpan& span : active) longest = std::max(longest, span.end - span.begin);
  return (longest - busiest(*this)) / busiest(*this);
}

Timetable simulate(const StepSchedule& schedule, const StepTimes& times) {
  return StepSimulation(schedule, times).run();
}

}  // namespace lockstep::plan
