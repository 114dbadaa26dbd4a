#include "lockstep/train/trainer/stage_run.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/plan/pipeline/batch_part.h"

namespace lockstep::train {
namespace {

using plan::Action;
using plan::ActionKind;

bool is_given(const Tensor& tensor) { return ops::is_given(tensor); }

}  // namespace

StageRun::StageRun(nn::Replica& replica, const plan::StepSchedule& schedule) : replica_(replica) {
  set_schedule(schedule);
}

StageRun::~StageRun() {
  if (received_.empty() && sent_.empty() && !queues_) return;
  replica_.pipeline_axis()->abort("a stage of the pipeline did not finish its step");
  const auto ended = [](const Work& work) {
    try {
      work.wait();
    } catch (const Error&) {
      // The error that ended the step has been reported.
    }
  };
  for (const auto& [message, works] : received_) std::ranges::for_each(works, ended);
  for (const auto& [buffer, work] : sent_) ended(work);
}

void StageRun::set_schedule(const plan::StepSchedule& schedule) {
  const int stage = replica_.model().stage();
  shape_ = schedule.shape;
  buffers_ = plan::stage_buffers(schedule, stage);
  if (!buffers_.in_turn) {
    list_ = list_of(schedule.stages.at(static_cast<std::size_t>(stage)));
    return;
  }
  const plan::PipelineKind& kind = plan::find_pipeline_kind(schedule.name);
  for (const bool follows : {false, true}) {
    for (const bool is_followed : {false, true}) {
      parts_[follows][is_followed] =
          list_of(plan::batch_part(kind, shape_, stage, {follows, is_followed}));
    }
  }
}

StageRun::List StageRun::list_of(const std::vector<Action>& actions) const {
  List list;
  std::vector<bool> has_begun(static_cast<std::size_t>(2 * shape_.micro_batches * shape_.slices));
  bool before_next = true;
  for (const Action& action : actions) {
    if (action.kind == ActionKind::kUpdate) continue;
    const bool is_of_next = action.micro_batch >= shape_.micro_batches;
    if (plan::is_message(action.kind)) {
      before_next = before_next && !is_of_next;
      (list.rounds.empty() ? list.first_messages : list.rounds.back().messages).push_back(action);
      continue;
    }
    // What stands before it: the messages at the beginning, or a whole round.
    list.parts_before_next += before_next ? 1 : 0;
    before_next = before_next && !is_of_next;
    Computation computation{.action = action, .is_of_next = is_of_next};
    if (!computation.is_forward()) {
      const auto index =
          static_cast<std::size_t>(action.micro_batch * shape_.slices + action.slice);
      computation.is_first_backward = !has_begun[index];
      has_begun[index] = true;
      if (!list.rounds.empty() && action.kind == ActionKind::kBackward) {
        Computation& before = list.rounds.back().computation;
        before.backward_is_next = before.is_forward() && before.action.chunk == action.chunk &&
                                  before.action.micro_batch == action.micro_batch &&
                                  before.action.slice == action.slice;
      }
    }
    list.rounds.push_back({.computation = computation, .messages = {}});
  }
  list.parts_before_next += before_next ? 1 : 0;
  return list;
}

plan::BufferCounts StageRun::use_of(const Action& action) const {
  plan::BufferCounts use = buffers_.of(action.chunk, number_of(action));
  if (buffers_.has_slices) use.slice = action.slice;
  return use;
}

nn::Flow StageRun::flow_of(const Action& message) const {
  const auto chunk = static_cast<std::size_t>(message.chunk);
  const plan::BufferCounts use = use_of(message);
  switch (message.kind) {
    case ActionKind::kReceiveActivation:
      return replica_.input(chunk, use);
    case ActionKind::kSendActivation:
      return replica_.output(chunk, use);
    case ActionKind::kReceiveGradient:
      return replica_.output_gradient(chunk, use);
    default:
      return replica_.input_gradient(chunk, use);
  }
}

void StageRun::await_sent(const nn::Flow& flow) {
  for (const Tensor& tensor : {flow.x, flow.memory}) {
    const auto found = is_given(tensor) ? sent_.find(tensor.data()) : sent_.end();
    if (found == sent_.end()) continue;
    replica_.pipeline_axis()->wait(found->second);
    sent_.erase(found);
  }
}

void StageRun::post_receives(const std::vector<Action>& messages) {
  for (const Action& message : messages) {
    if (plan::is_send(message.kind)) continue;
    const nn::Flow flow = flow_of(message);
    await_sent(flow);
    auto& works = received_[{message.kind, message.chunk, number_of(message), message.slice}];
    for (const Tensor& tensor : {flow.x, flow.memory}) {
      if (is_given(tensor)) {
        works.push_back(replica_.pipeline_axis()->receive(tensor, message.peer));
      }
    }
  }
}

void StageRun::start_sends(const std::vector<Action>& messages) {
  for (const Action& message : messages) {
    if (!plan::is_send(message.kind)) continue;
    replica_.ops().synchronize();
    const nn::Flow flow = flow_of(message);
    for (const Tensor& tensor : {flow.x, flow.memory}) {
      if (!is_given(tensor)) continue;
      sent_.insert_or_assign(tensor.data(), replica_.pipeline_axis()->send(tensor, message.peer));
    }
  }
}

void StageRun::queue_messages(const std::vector<Action>& messages) {
  nn::PipelineAxis& axis = *replica_.pipeline_axis();
  for (const Action& message : messages) {
    const nn::Flow flow = flow_of(message);
    for (const Tensor& tensor : {flow.x, flow.memory}) {
      if (!is_given(tensor)) continue;
      if (plan::is_send(message.kind)) {
        axis.queue_send(replica_.ops(), tensor, message.peer);
      } else {
        axis.queue_receive(replica_.ops(), tensor, message.peer);
      }
    }
  }
}

void StageRun::await_inputs(const Action& computation, parallel::Trace& trace) {
  if (computation.kind == ActionKind::kBackwardWeight) return;
  const bool forward = computation.kind == ActionKind::kForward;
  const auto found =
      received_.find({forward ? ActionKind::kReceiveActivation : ActionKind::kReceiveGradient,
                      computation.chunk, number_of(computation), computation.slice});
  if (found == received_.end()) return;
  const parallel::TraceScope scope(trace, {.lane = parallel::TraceLane::kWaiting,
                                           .kind = "wait for",
                                           .of = forward ? "activation" : "gradient",
                                           .index = computation.micro_batch});
  for (const Work& work : found->second) replica_.pipeline_axis()->wait(work);
  received_.erase(found);
}

void StageRun::await_outputs(const Action& computation, parallel::Trace& trace) {
  if (sent_.empty() || computation.kind == ActionKind::kBackwardWeight) return;
  const parallel::TraceScope scope(
      trace, {.lane = parallel::TraceLane::kWaiting, .kind = "wait for", .of = "send"});
  const auto chunk = static_cast<std::size_t>(computation.chunk);
  const plan::BufferCounts use = use_of(computation);
  await_sent(computation.kind == ActionKind::kForward ? replica_.output(chunk, use)
                                                      : replica_.input_gradient(chunk, use));
}

void StageRun::step(std::int64_t micro_batches, parallel::Trace& trace,
                    const std::function<void(const Computation&)>& compute) {
  if (micro_batches == 0) return;
  if (micro_batches != shape_.micro_batches) {
    if (shape_.stages > 1) {
      fail(ErrorCode::kInvalidArgument,
           "a step of {} micro-batches came, but the pipeline's schedule is made for {}",
           micro_batches, shape_.micro_batches);
    }
    plan::PipelineShape shape = shape_;
    shape.micro_batches = static_cast<int>(micro_batches);
    set_schedule(plan::make_step_schedule(plan::find_pipeline_kind("sequential"), shape));
  }
  if (can_be_followed()) return step_of_stream(trace, compute, [] { return false; });
  received_.clear();
  sent_.clear();
  if (replica_.pipeline_axis() != nullptr && replica_.pipeline_axis()->queues()) {
    queues_ = true;
    queue_messages(list_.first_messages);
    for (const Round& round : list_.rounds) {
      compute(placed(round.computation));
      queue_messages(round.messages);
    }
    queues_ = false;
    return;
  }
  post_receives(list_.first_messages);
  for (const Round& round : list_.rounds) run_round(round, trace, compute);
  end_sends();
}

StageRun::Computation StageRun::placed(const Computation& computation) const {
  Computation one = computation;
  one.use = use_of(computation.action);
  return one;
}

void StageRun::run_round(const Round& round, parallel::Trace& trace,
                         const std::function<void(const Computation&)>& compute) {
  post_receives(round.messages);
  await_inputs(round.computation.action, trace);
  await_outputs(round.computation.action, trace);
  compute(placed(round.computation));
  start_sends(round.messages);
}

void StageRun::end_sends() {
  for (const auto& [buffer, work] : sent_) replica_.pipeline_axis()->wait(work);
  sent_.clear();
}

void StageRun::step_of_stream(parallel::Trace& trace,
                              const std::function<void(const Computation&)>& compute,
                              const std::function<bool()>& is_followed) {
  const bool follows = std::exchange(is_filled_, false);
  first_ = follows ? first_ + shape_.micro_batches : 0;
  // Both lists are the same up to where the next step begins. What comes there in the one may come
  // later in the other.
  const List* list = &parts_[follows][true];
  const std::size_t undecided = list->parts_before_next;
  bool fills = false;
  const auto decide = [&](std::size_t part) {
    if (part != undecided) return;
    fills = is_followed();
    if (fills) return;
    const List& open = *std::exchange(list, &parts_[follows][false]);
    if (part == 0) return;
    const auto done = static_cast<std::ptrdiff_t>(open.messages_of(part - 1).size());
    const std::vector<Action>& all = list->messages_of(part - 1);
    const std::vector<Action> left(all.begin() + done, all.end());
    post_receives(left);
    start_sends(left);
  };
  decide(0);
  post_receives(list->first_messages);
  for (std::size_t i = 0; i < list->rounds.size(); ++i) {
    decide(i + 1);
    run_round(list->rounds[i], trace, compute);
  }
  decide(list->rounds.size() + 1);
  is_filled_ = fills;
  if (!fills) end_sends();
}

}  // namespace lockstep::train
