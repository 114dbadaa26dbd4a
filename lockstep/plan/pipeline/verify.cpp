#include "lockstep/plan/pipeline/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/plan/pipeline/computations.h"

namespace lockstep::plan {
namespace {

class SymbolicStep {
 public:
  explicit SymbolicStep(const StepSchedule& schedule)
      : schedule_(schedule),
        shape_(schedule.shape),
        done_(computation_count(shape_)),
        delivered_(done_.size()),
        versions_(static_cast<std::size_t>(shape_.all_micro_batches())),
        ranks_(schedule.stages.size()) {}

  StepCounts run() {
    check_fields();
    while (advance_all(shape_.stages, [this](int stage) { return advance(stage); })) {
    }
    check_no_deadlock();
    check_complete();
    for (const Rank& rank : ranks_) {
      counts_.stash.push_back(rank.most_held);
      counts_.awaiting_weight.push_back(rank.most_awaiting);
    }
    return std::move(counts_);
  }

 private:
  struct Rank {
    std::size_t position = 0;
    int updates = 0;
    int held = 0;
    int most_held = 0;
    int awaiting = 0;
    int most_awaiting = 0;
  };

  Rank& rank(int stage) { return ranks_[static_cast<std::size_t>(stage)]; }
  const std::vector<Action>& actions(int stage) const {
    return schedule_.stages[static_cast<std::size_t>(stage)];
  }
  // The action that a stage is at; none when it has ended.
  const Action* current(int stage) const {
    const std::size_t position = ranks_[static_cast<std::size_t>(stage)].position;
    return position < actions(stage).size() ? &actions(stage)[position] : nullptr;
  }

  [[noreturn]] void fault(int stage, const Action& action, const std::string& why) const {
    fail(ErrorCode::kInvalidArgument, "schedule {}, stage {}, {}: {}", schedule_.name, stage,
         describe(action), why);
  }

  void check_fields() const {
    for (int stage = 0; stage < shape_.stages; ++stage) {
      for (const Action& action : actions(stage)) check_fields(stage, action);
    }
  }

  void check_fields(int stage, const Action& action) const {
    const auto within = [](int value, int count) { return value >= 0 && value < count; };
    if (!within(action.micro_batch, shape_.all_micro_batches()) ||
        !within(action.chunk, shape_.chunks) || !within(action.slice, shape_.slices)) {
      fault(stage, action, "there is no such micro-batch, chunk or slice");
    }
    if (!is_message(action.kind)) {
      if (action.peer != -1) fault(stage, action, "it is no message and has no peer");
      return;
    }
    const Computation content = carried_by(shape_, stage, action);
    const std::optional<int> reader = within(content.virtual_stage, shape_.virtual_stages())
                                          ? reader_of(shape_, content)
                                          : std::nullopt;
    if (!reader) fault(stage, action, "the model has no such neighbour");
    const int peer = shape_.stage_of(is_send(action.kind) ? *reader : content.virtual_stage);
    if (peer == stage) fault(stage, action, "a stage needs no message to itself");
    if (action.peer != peer) fault(stage, action, fmt::format("its neighbour is stage {}", peer));
    if (action.version != 0) fault(stage, action, "a message uses no weights");
  }

  bool advance(int stage) {
    const Action* action = current(stage);
    if (action == nullptr) return false;
    if (is_message(action->kind)) return meet(stage, *action);
    check_needs(stage, *action);
    if (action->kind == ActionKind::kUpdate) {
      update(stage, *action);
    } else {
      compute(stage, *action);
    }
    ++rank(stage).position;
    return true;
  }

  // A message happens when both stages are at it. Returns whether they are.
  bool meet(int stage, const Action& action) {
    const Action* other = current(action.peer);
    if (other == nullptr || !is_message(other->kind) || other->peer != stage) return false;
    if (is_send(action.kind) == is_send(other->kind)) return false;
    const Computation content = carried_by(shape_, stage, action);
    if (content != carried_by(shape_, action.peer, *other)) {
      fault(stage, action, fmt::format("stage {} is at the {}", action.peer, describe(*other)));
    }
    const int from = is_send(action.kind) ? stage : action.peer;
    check_needs(from, *current(from));
    auto delivered = delivered_[index_of(shape_, content)];
    if (delivered) fault(stage, action, "it was sent before");
    delivered = true;
    ++(content.phase == Phase::kForward ? counts_.activation_messages : counts_.gradient_messages);
    ++rank(stage).position;
    ++rank(action.peer).position;
    return true;
  }

  // All that an action reads was computed, and is on its stage.
  void check_needs(int stage, const Action& action) const {
    for (const Computation& need : needed_by(shape_, stage, action)) {
      const std::size_t index = index_of(shape_, need);
      const bool local = shape_.stage_of(need.virtual_stage) == stage;
      if (local ? done_[index] : delivered_[index]) continue;
      fault(stage, action,
            fmt::format("it reads the {} of micro-batch {}, slice {}, virtual stage {}, which {}",
                        name_of(need.phase), need.micro_batch, need.slice, need.virtual_stage,
                        local ? "is not computed yet" : "has not arrived"));
    }
  }

  static std::string_view name_of(Phase phase) {
    if (phase == Phase::kForward) return "activation";
    return phase == Phase::kInputGradient ? "input gradient" : "weight gradient";
  }

  void compute(int stage, const Action& action) {
    for (const Computation& computed : computed_by(shape_, stage, action)) {
      auto done = done_[index_of(shape_, computed)];
      if (done) fault(stage, action, "it was computed before");
      done = true;
      if (computed.phase == Phase::kWeightGradient) check_batch(stage, action);
    }
    check_version(stage, action);
    count_stash(rank(stage), action.kind);
  }

  // A stage accumulates gradients in one place, which an update empties.
  void check_batch(int stage, const Action& action) {
    const int batch = shape_.batch_of(action.micro_batch);
    if (batch == rank(stage).updates) return;
    fault(stage, action,
          fmt::format("it is of batch {}, but update {} is due first", batch, rank(stage).updates));
  }

  void check_version(int stage, const Action& action) {
    const int newest = rank(stage).updates;
    if (action.version > newest || action.version <= newest - schedule_.weight_versions) {
      fault(stage, action,
            fmt::format("it uses version {} of the weights after {} updates with {} kept",
                        action.version, newest, schedule_.weight_versions));
    }
    std::optional<int>& version = versions_[static_cast<std::size_t>(action.micro_batch)];
    if (version && *version != action.version) {
      fault(stage, action,
            fmt::format("it uses version {} of the weights; others of its "
                        "micro-batch use {}",
                        action.version, *version));
    }
    version = action.version;
    const int missed = shape_.batch_of(action.micro_batch) - action.version;
    counts_.staleness = std::max(counts_.staleness, missed);
  }

  static void count_stash(Rank& rank, ActionKind kind) {
    if (kind == ActionKind::kForward) ++rank.held;
    if (kind == ActionKind::kBackwardInput) ++rank.awaiting;
    rank.most_held = std::max(rank.most_held, rank.held);
    rank.most_awaiting = std::max(rank.most_awaiting, rank.awaiting);
    if (kind == ActionKind::kBackwardWeight) --rank.awaiting;
    if (kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight) --rank.held;
  }

  void update(int stage, const Action& action) {
    Rank& self = rank(stage);
    const int last = (self.updates + 1) * shape_.micro_batches - 1;
    if (action.micro_batch != last || action.version != self.updates || action.chunk != 0 ||
        action.slice != 0) {
      fault(stage, action, fmt::format("its update number {} is due", self.updates));
    }
    ++self.updates;
  }

  void check_no_deadlock() const {
    std::string waits;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      if (current(stage) == nullptr) continue;
      waits += fmt::format("{}stage {} waits in the {}", waits.empty() ? "" : ", ", stage,
                           describe(*current(stage)));
    }
    if (waits.empty()) return;
    fail(ErrorCode::kInvalidArgument, "schedule {} deadlocks: {}", schedule_.name, waits);
  }

  // An update needs all weight gradients of its batch, and these need all else. So a step that has
  // its updates has everything.
  void check_complete() const {
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const int updates = ranks_[static_cast<std::size_t>(stage)].updates;
      if (updates == shape_.batches) continue;
      fail(ErrorCode::kInvalidArgument, "schedule {}, stage {}: {} updates of {} batches",
           schedule_.name, stage, updates, shape_.batches);
    }
  }

  const StepSchedule& schedule_;
  const PipelineShape& shape_;
  std::vector<bool> done_;       // by computation
  std::vector<bool> delivered_;  // computations whose result has arrived on another stage
  std::vector<std::optional<int>> versions_;  // of the weights, by micro-batch
  std::vector<Rank> ranks_;
  StepCounts counts_;
};

}  // namespace

StepCounts verify(const StepSchedule& schedule) {
  if (std::ssize(schedule.stages) != schedule.shape.stages) {
    fail(ErrorCode::kInvalidArgument, "schedule {} has actions of {} stages, not of {}",
         schedule.name, schedule.stages.size(), schedule.shape.stages);
  }
  return SymbolicStep(schedule).run();
}

}  // namespace lockstep::plan
