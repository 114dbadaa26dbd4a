#include "lockstep/plan/pipeline/computations.h"

namespace lockstep::plan {
namespace {

constexpr std::size_t kPhases = 3;

std::vector<Computation> needs_of_forward(const Computation& self) {
  std::vector<Computation> needs;
  if (self.virtual_stage > 0) {
    needs.push_back(self);
    --needs.back().virtual_stage;
  }
  if (self.slice > 0) {
    needs.push_back(self);
    --needs.back().slice;
  }
  return needs;
}

std::vector<Computation> needs_of_backward(const PipelineShape& shape, const Computation& self) {
  std::vector<Computation> needs = {self};
  needs.back().phase = Phase::kForward;
  if (self.virtual_stage + 1 < shape.virtual_stages()) {
    needs.push_back(self);
    ++needs.back().virtual_stage;
  }
  if (self.slice + 1 < shape.slices) {
    needs.push_back(self);
    ++needs.back().slice;
  }
  return needs;
}

std::vector<Computation> needs_of_update(const PipelineShape& shape, int stage,
                                         const Action& update) {
  std::vector<Computation> needs;
  const int first = shape.batch_of(update.micro_batch) * shape.micro_batches;
  for (int i = first; i < first + shape.micro_batches; ++i) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int slice = 0; slice < shape.slices; ++slice) {
        needs.push_back({Phase::kWeightGradient, shape.virtual_stage(stage, chunk), i, slice});
      }
    }
  }
  return needs;
}

}  // namespace

std::size_t computation_count(const PipelineShape& shape) {
  return kPhases * static_cast<std::size_t>(shape.virtual_stages()) *
         static_cast<std::size_t>(shape.all_micro_batches()) *
         static_cast<std::size_t>(shape.slices);
}

std::size_t index_of(const PipelineShape& shape, const Computation& computation) {
  auto index = static_cast<std::size_t>(computation.phase);
  index = index * static_cast<std::size_t>(shape.virtual_stages()) +
          static_cast<std::size_t>(computation.virtual_stage);
  index = index * static_cast<std::size_t>(shape.all_micro_batches()) +
          static_cast<std::size_t>(computation.micro_batch);
  return index * static_cast<std::size_t>(shape.slices) +
         static_cast<std::size_t>(computation.slice);
}

std::vector<Computation> computed_by(const PipelineShape& shape, int stage, const Action& action) {
  const auto one = [&](Phase phase) {
    return Computation{phase, shape.virtual_stage(stage, action.chunk), action.micro_batch,
                       action.slice};
  };
  switch (action.kind) {
    case ActionKind::kForward:
      return {one(Phase::kForward)};
    case ActionKind::kBackward:
      return {one(Phase::kInputGradient), one(Phase::kWeightGradient)};
    case ActionKind::kBackwardInput:
      return {one(Phase::kInputGradient)};
    case ActionKind::kBackwardWeight:
      return {one(Phase::kWeightGradient)};
    default:
      return {};
  }
}

std::vector<Computation> needed_by(const PipelineShape& shape, int stage, const Action& action) {
  Computation self{Phase::kForward, shape.virtual_stage(stage, action.chunk), action.micro_batch,
                   action.slice};
  switch (action.kind) {
    case ActionKind::kForward:
      return needs_of_forward(self);
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      self.phase = Phase::kInputGradient;
      return needs_of_backward(shape, self);
    case ActionKind::kBackwardWeight:
      self.phase = Phase::kInputGradient;
      return {self};
    case ActionKind::kUpdate:
      return needs_of_update(shape, stage, action);
    case ActionKind::kSendActivation:
    case ActionKind::kSendGradient:
      return {carried_by(shape, stage, action)};
    default:
      return {};
  }
}

std::optional<int> reader_of(const PipelineShape& shape, const Computation& computation) {
  if (computation.phase == Phase::kWeightGradient) return std::nullopt;
  const int reader = computation.virtual_stage + (computation.phase == Phase::kForward ? 1 : -1);
  if (reader < 0 || reader >= shape.virtual_stages()) return std::nullopt;
  return reader;
}

Computation carried_by(const PipelineShape& shape, int stage, const Action& message) {
  const int self = shape.virtual_stage(stage, message.chunk);
  const int micro_batch = message.micro_batch;
  switch (message.kind) {
    case ActionKind::kSendActivation:
      return {Phase::kForward, self, micro_batch, message.slice};
    case ActionKind::kReceiveActivation:
      return {Phase::kForward, self - 1, micro_batch, message.slice};
    case ActionKind::kSendGradient:
      return {Phase::kInputGradient, self, micro_batch, message.slice};
    default:
      return {Phase::kInputGradient, self + 1, micro_batch, message.slice};
  }
}

}  // namespace lockstep::plan
