// The order of a training step over pipeline stages, as data: step schedules.
//
// Words. The model is cut into p *stages*, one for each rank of the pipeline axis. A *micro-batch*
// is the sequences that go through the stages together. With v *chunks* per stage the model is cut
// into p*v *virtual stages*: chunk c of stage i is virtual stage c*p + i, so a micro-batch goes
// around the ranks v times. With k *slices* the tokens of a micro-batch go through the stages in k
// parts, first tokens first.
//
// An *action* is what a rank does at a time: compute forward or backward of one micro-batch, chunk
// and slice, exchange its activation or gradient with a neighbour, or update. Backward may be one
// action, or two: the gradient of the input, which the stage before waits for, and the gradient of
// the weights, which nobody waits for.
//
//   1F1B, 2 stages, 2 micro-batches, messages left out:
//     stage 0:  F0 F1    B0    B1 U
//     stage 1:     F0 B0 F1 B1    U
//
// What an action needs:
//   forward          the activation of the virtual stage before, and forward of the slice before:
//                    attention reads its keys and values
//   backward         its own forward, the gradient of the virtual stage after, and backward of the
//                    slice after, which adds to the gradients of its keys and values
//   weight gradient  its own input gradient
//   update           all gradients of the weights of its batch
//
// A step schedule is a list of actions for every stage. A generator makes it in two parts: a pure
// function gives the computations of one stage in order, and add_messages() (messages.h) puts
// sends and receives between them. verify() (verify.h) proves the result, simulate()
// (timetable.h) says when each action runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::plan {

enum class ActionKind : std::uint8_t {
  kForward,
  kBackward,        // both gradients
  kBackwardInput,   // the gradient of the input alone
  kBackwardWeight,  // the gradient of the weights alone
  kSendActivation,  // to the virtual stage after
  kReceiveActivation,
  kSendGradient,  // to the virtual stage before
  kReceiveGradient,
  kUpdate,
};

bool is_message(ActionKind kind);
bool is_send(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;  // counted over all batches; of an update: the last one of its batch
  int chunk = 0;        // of this stage, also in messages
  int slice = 0;
  int peer = -1;    // the other stage of a message
  int version = 0;  // updates that the weights of a computation have seen; of an update: before it
  friend bool operator==(const Action&, const Action&) = default;
};

// "forward of micro-batch 3, chunk 1", "send of the gradient of micro-batch 0 to stage 2"
std::string describe(const Action& action);

struct PipelineShape {
  int stages = 1;
  int micro_batches = 1;  // per batch, that is per update
  int chunks = 1;         // per stage
  int slices = 1;         // per micro-batch
  int batches = 1;        // that follow each other without emptying the pipeline

  int virtual_stages() const { return stages * chunks; }
  int all_micro_batches() const { return micro_batches * batches; }
  int virtual_stage(int stage, int chunk) const { return chunk * stages + stage; }
  int stage_of(int virtual_stage) const { return virtual_stage % stages; }
  int chunk_of(int virtual_stage) const { return virtual_stage / stages; }
  int batch_of(int micro_batch) const { return micro_batch / micro_batches; }
};

struct StepSchedule {
  std::string name;
  PipelineShape shape;
  int weight_versions = 1;                  // that a stage keeps: the newest ones
  std::vector<std::vector<Action>> stages;  // the actions of every stage, in order
};

// How a kind of schedule orders the computations of a stage.
struct PipelineKind {
  std::string_view name;     // "1f1b"
  std::string_view summary;  // one sentence
  int weight_versions = 1;
  // A pure function; called only for shapes that are not refused.
  std::vector<Action> (*order)(const PipelineShape& shape, int stage);
  // Why this kind cannot serve the shape, and what would work; nothing if it can.
  std::optional<std::string> (*refuses)(const PipelineShape& shape);
};

// All kinds, the simplest first.
std::span<const PipelineKind> pipeline_kinds();

// The kind of that name. Throws Error(kInvalidArgument) with all names and the nearest.
const PipelineKind& find_pipeline_kind(std::string_view name);

// Throws Error(kInvalidArgument) for a shape that the kind cannot serve, or that is too large.
StepSchedule make_step_schedule(const PipelineKind& kind, const PipelineShape& shape);

}  // namespace lockstep::plan
