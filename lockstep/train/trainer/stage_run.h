// Runs the part of a step that one pipeline stage has, in the order of its step schedule
// (plan/pipeline/step_schedule.h). A worker without a pipeline is one stage without messages.
//
//   messages      | receive F1 ....... | send F0, receive B0 | ...
//   computations  | forward 0          | forward 1           | backward 0 | ...
//
// The messages between two computations travel beside compute: receives are posted before the first
// of the two begins, and sends are started when it has ended. A computation waits for what it
// reads, and for sends that still read what it overwrites. The buffers of a micro-batch are those
// of plan/pipeline/stage_buffers.h.
//
// With a schedule of several batches (PipeDream-2BW) the pipeline is not emptied between steps: a
// step that is followed ends when the forwards of the next one that belong to its part
// (plan/pipeline/batch_part.h) are computed, and messages may be under way then. Whether it is
// followed is decided late: before the first of them.
//
// Between GPUs of a node, messages are queued among the operations in exactly the order of the
// schedule (PipelineAxis::queues()), so no stage waits on the host. That is the rule by which the
// schedule was proven to end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/trace/trace.h"
#include "lockstep/plan/pipeline/stage_buffers.h"
#include "lockstep/plan/pipeline/step_schedule.h"

namespace lockstep::train {

class StageRun {
 public:
  // A forward, a backward or a part of one.
  struct Computation {
    plan::Action action;
    plan::BufferCounts use;
    bool backward_is_next = false;  // of a forward: the stage's next computation is its backward
    // No chunk has begun the backward of its micro-batch, or of this slice of it, before.
    bool is_first_backward = false;
    // Of the next step. `action` counts micro-batches from the first of this one.
    bool is_of_next = false;

    bool is_forward() const { return action.kind == plan::ActionKind::kForward; }
  };

  // The replica must outlive it, and was planned with the same schedule.
  StageRun(nn::Replica& replica, const plan::StepSchedule& schedule);
  // Ends the messages of a step that has failed, on all stages.
  ~StageRun();
  StageRun(const StageRun&) = delete;
  StageRun& operator=(const StageRun&) = delete;

  int slices() const { return shape_.slices; }  // of a micro-batch

  // Calls `compute` for every computation of a step of this many micro-batches. Throws
  // Error(kInvalidArgument) for another number than the schedule's, if there are several stages.
  void step(std::int64_t micro_batches, parallel::Trace& trace,
            const std::function<void(const Computation&)>& compute);

  // Whether the pipeline need not be empty between steps.
  bool can_be_followed() const { return buffers_.in_turn; }
  // A step of as many micro-batches as planned. Calls `is_followed` once, before the first
  // computation or message of the next step, or at the end if this stage has none: whether the next
  // call continues there. All stages must decide alike. If not, the pipeline is empty afterwards.
  void step_of_stream(parallel::Trace& trace,
                      const std::function<void(const Computation&)>& compute,
                      const std::function<bool()>& is_followed);
  // Whether the last step was followed.
  bool is_filled() const { return is_filled_; }

 private:
  // A computation, and the messages that follow it.
  struct Round {
    Computation computation;
    std::vector<plan::Action> messages;
  };
  // A stage's list for a step.
  struct List {
    std::vector<plan::Action> first_messages;  // before the first computation
    std::vector<Round> rounds;
    // The messages before all computations are part 0, the first round is part 1, and so on. How
    // many have nothing to do with the next step.
    std::size_t parts_before_next = 0;

    const std::vector<plan::Action>& messages_of(std::size_t part) const {
      return part == 0 ? first_messages : rounds[part - 1].messages;
    }
  };
  // Kind, chunk, micro-batch and slice of a message.
  using Received = std::tuple<plan::ActionKind, int, std::int64_t, int>;

  void set_schedule(const plan::StepSchedule& schedule);
  List list_of(const std::vector<plan::Action>& actions) const;
  void run_round(const Round& round, parallel::Trace& trace,
                 const std::function<void(const Computation&)>& compute);
  void end_sends();
  std::int64_t number_of(const plan::Action& action) const { return first_ + action.micro_batch; }
  plan::BufferCounts use_of(const plan::Action& action) const;
  Computation placed(const Computation& computation) const;  // with its buffers
  nn::Flow flow_of(const plan::Action& message) const;
  void post_receives(const std::vector<plan::Action>& messages);
  void start_sends(const std::vector<plan::Action>& messages);
  void queue_messages(const std::vector<plan::Action>& messages);
  void await_inputs(const plan::Action& computation, parallel::Trace& trace);
  void await_outputs(const plan::Action& computation, parallel::Trace& trace);
  void await_sent(const nn::Flow& flow);

  nn::Replica& replica_;
  plan::PipelineShape shape_;
  plan::StageBuffers buffers_;
  List list_;         // where the pipeline is empty before and after the step
  List parts_[2][2];  // else: by whether a step follows another, and whether it is followed

  // Under way.
  bool is_filled_ = false;
  std::int64_t first_ = 0;  // micro-batch of the step, since the pipeline was empty
  bool queues_ = false;
  std::map<Received, std::vector<Work>> received_;
  std::map<const std::byte*, Work> sent_;  // by the buffer
};

}  // namespace lockstep::train
