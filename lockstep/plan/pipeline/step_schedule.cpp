#include "lockstep/plan/pipeline/step_schedule.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/plan/pipeline/messages.h"
#include "lockstep/plan/pipeline/orders.h"

namespace lockstep::plan {
namespace {

constexpr int kMostScheduled = 1'000'000;

std::string_view verb_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward of";
    case ActionKind::kBackward:
      return "backward of";
    case ActionKind::kBackwardInput:
      return "input gradient of";
    case ActionKind::kBackwardWeight:
      return "weight gradient of";
    case ActionKind::kSendActivation:
      return "send of the activation of";
    case ActionKind::kReceiveActivation:
      return "receive of the activation of";
    case ActionKind::kSendGradient:
      return "send of the gradient of";
    case ActionKind::kReceiveGradient:
      return "receive of the gradient of";
    case ActionKind::kUpdate:
      return "update after";
  }
  return "";
}

// What a kind divides besides stages and micro-batches.
struct Divides {
  bool chunks = false;
  bool slices = false;
  bool batches = false;
};

std::optional<std::string> refuses_more(const PipelineShape& shape, Divides divides) {
  if (shape.chunks > 1 && !divides.chunks) {
    return fmt::format("has one chunk per stage, not {}; interleaved has several", shape.chunks);
  }
  if (shape.slices > 1 && !divides.slices) {
    return fmt::format("keeps micro-batches whole; {} slices are for terapipe", shape.slices);
  }
  if (shape.batches > 1 && !divides.batches) {
    return fmt::format(
        "empties the pipeline after every batch; {} without that are for "
        "pipedream_2bw",
        shape.batches);
  }
  return std::nullopt;
}

std::optional<std::string> plain(const PipelineShape& shape) { return refuses_more(shape, {}); }
std::optional<std::string> with_chunks(const PipelineShape& shape) {
  return refuses_more(shape, {.chunks = true});
}
std::optional<std::string> with_slices(const PipelineShape& shape) {
  return refuses_more(shape, {.slices = true});
}

// The first forward of a batch needs the update of the batch before the last one. On stage 0 the
// backward of p micro-batches earlier has ended by then; with m >= p - 1 that update has, too.
std::optional<std::string> two_versions(const PipelineShape& shape) {
  if (shape.micro_batches < shape.stages - 1) {
    return fmt::format(
        "needs {} micro-batches or more on {} stages, not {}: with fewer, two "
        "versions of the weights are not enough",
        shape.stages - 1, shape.stages, shape.micro_batches);
  }
  return refuses_more(shape, {.batches = true});
}

constexpr PipelineKind kKinds[] = {
    {"sequential", "layers are spread over stages, and one micro-batch is in them at a time", 1,
     sequential_order, plain},
    {"gpipe", "all forwards, then all backwards", 1, gpipe_order, plain},
    {"1f1b", "forward and backward in turn: GPipe's bubble, but p micro-batches held instead of m",
     1, one_f_one_b_order, plain},
    {"interleaved", "1F1B with several chunks per stage: a smaller bubble, more messages", 1,
     interleaved_order, with_chunks},
    {"zb_h1", "zero bubble with 1F1B's memory: gradients of weights fill what 1F1B waits", 1,
     zb_h1_order, plain},
    {"zb_h2", "zero bubble with twice the memory: no stage waits between its first and last action",
     1, zb_h2_order, plain},
    {"terapipe", "GPipe over slices of tokens, for few long sequences", 1, terapipe_order,
     with_slices},
    {"pipedream_2bw",
     "1F1B that is never empty: two versions of weights, gradients one update late", 2,
     pipedream_2bw_order, two_versions},
};

void check_counts(const PipelineShape& shape) {
  const auto check = [](int count, std::string_view what) {
    if (count < 1) fail(ErrorCode::kInvalidArgument, "{} {}; 1 or more are fine", count, what);
  };
  check(shape.stages, "stages");
  check(shape.micro_batches, "micro-batches");
  check(shape.chunks, "chunks per stage");
  check(shape.slices, "slices");
  check(shape.batches, "batches");
  const double computations =
      1.0 * shape.stages * shape.micro_batches * shape.chunks * shape.slices * shape.batches;
  if (computations > kMostScheduled) {
    fail(ErrorCode::kInvalidArgument,
         "stages x micro-batches x chunks x slices x batches is {:.0f}; schedules have up to {}",
         computations, kMostScheduled);
  }
}

}  // namespace

bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}

bool is_message(ActionKind kind) {
  return is_send(kind) || kind == ActionKind::kReceiveActivation ||
         kind == ActionKind::kReceiveGradient;
}

std::string describe(const Action& action) {
  std::string text = fmt::format("{} micro-batch {}", verb_of(action.kind), action.micro_batch);
  if (action.chunk != 0) text += fmt::format(", chunk {}", action.chunk);
  if (action.slice != 0) text += fmt::format(", slice {}", action.slice);
  if (is_message(action.kind)) {
    text += fmt::format(" {} stage {}", is_send(action.kind) ? "to" : "from", action.peer);
  }
  return text;
}

std::span<const PipelineKind> pipeline_kinds() { return kKinds; }

const PipelineKind& find_pipeline_kind(std::string_view name) {
  std::vector<std::string_view> names;
  for (const PipelineKind& kind : kKinds) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  fail(ErrorCode::kInvalidArgument, "unknown schedule '{}'{}; expected one of {}", name,
       did_you_mean(name, names), fmt::join(names, ", "));
}

StepSchedule make_step_schedule(const PipelineKind& kind, const PipelineShape& shape) {
  check_counts(shape);
  if (const auto why = kind.refuses(shape)) {
    fail(ErrorCode::kInvalidArgument, "schedule {} {}", kind.name, *why);
  }
  StepSchedule schedule{
      .name = std::string(kind.name), .shape = shape, .weight_versions = kind.weight_versions};
  for (int stage = 0; stage < shape.stages; ++stage) {
    schedule.stages.push_back(kind.order(shape, stage));
  }
  add_messages(schedule);
  return schedule;
}

}  // namespace lockstep::plan
