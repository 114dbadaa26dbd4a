#include "lockstep/plan/pipeline/stage_buffers.h"

#include <algorithm>
#include <vector>

namespace lockstep::plan {
namespace {

// Computations of a stage; absent: last < first.
struct Lifetime {
  int first = 0;
  int last = -1;
  bool is_given() const { return last >= first; }
};

struct MicroBatchLives {
  Lifetime slot, input, gradient, output, input_gradient, weight_inputs;
  int last_forward = 0;  // of its slices so far
  int first_backward = -1;
};

class LifeReader {
 public:
  LifeReader(const StepSchedule& schedule, int stage)
      : shape_(schedule.shape),
        lives_(static_cast<std::size_t>(shape_.chunks * shape_.all_micro_batches())),
        came_(lives_.size()) {
    for (const Action& action : schedule.stages.at(static_cast<std::size_t>(stage))) add(action);
  }

  const MicroBatchLives& of(int chunk, int micro_batch) const {
    return lives_[index(chunk, micro_batch)];
  }

 private:
  struct Posted {
    int activation = -1;
    int gradient = -1;
  };

  std::size_t index(int chunk, int micro_batch) const {
    return static_cast<std::size_t>(chunk * shape_.all_micro_batches() + micro_batch);
  }

  void add(const Action& action) {
    MicroBatchLives& lives = lives_[index(action.chunk, action.micro_batch)];
    Posted& came = came_[index(action.chunk, action.micro_batch)];
    const int before = std::max(computed_ - 1, 0);
    switch (action.kind) {
      case ActionKind::kForward:
        if (action.slice == 0) lives.slot.first = computed_;
        lives.last_forward = computed_;
        ++computed_;
        break;
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        lives.slot.last = computed_;
        if (lives.first_backward < 0) lives.first_backward = computed_;
        if (came.activation >= 0) lives.input = {came.activation, computed_};
        if (came.gradient >= 0) lives.gradient = {came.gradient, computed_};
        lives.weight_inputs.first = computed_;
        ++computed_;
        break;
      case ActionKind::kBackwardWeight:
        lives.weight_inputs.last = computed_;
        ++computed_;
        break;
      case ActionKind::kReceiveActivation:
        if (came.activation < 0) came.activation = before;
        break;
      case ActionKind::kReceiveGradient:
        if (came.gradient < 0) came.gradient = before;
        break;
      case ActionKind::kSendActivation:
        lives.output = {lives.slot.first, lives.last_forward + 1};
        break;
      case ActionKind::kSendGradient:
        lives.input_gradient = {lives.first_backward, lives.slot.last + 1};
        break;
      case ActionKind::kUpdate:
        break;
    }
  }

  PipelineShape shape_;
  std::vector<MicroBatchLives> lives_;
  std::vector<Posted> came_;
  int computed_ = 0;  // computations so far
};

// Gives every lifetime the first buffer that is free; returns how many there are.
int assign(const std::vector<Lifetime>& lives, const std::vector<int*>& places) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < lives.size(); ++i) {
    if (lives[i].is_given()) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return lives[i].first; });
  std::vector<int> free_after;  // of each buffer: its last computation so far
  for (const std::size_t i : order) {
    auto buffer = std::ranges::find_if(free_after, [&](int last) { return last < lives[i].first; });
    if (buffer == free_after.end()) buffer = free_after.insert(buffer, 0);
    *buffer = lives[i].last;
    *places[i] = static_cast<int>(buffer - free_after.begin());
  }
  return static_cast<int>(free_after.size());
}

}  // namespace

BufferCounts StageBuffers::of(int chunk, std::int64_t micro_batch) const {
  const auto at = static_cast<std::size_t>(chunk);
  if (!in_turn) return uses.at(at).at(static_cast<std::size_t>(micro_batch));
  const BufferCounts& counts = chunks.at(at);
  const auto turn = [&](int count) {
    return count == 0 ? 0 : static_cast<int>(micro_batch % count);
  };
  return {.slots = turn(counts.slots),
          .inputs = turn(counts.inputs),
          .gradients = turn(counts.gradients),
          .outputs = turn(counts.outputs),
          .input_gradients = turn(counts.input_gradients),
          .weight_inputs = turn(counts.weight_inputs)};
}

StageBuffers stage_buffers(const StepSchedule& schedule, int stage) {
  const PipelineShape& shape = schedule.shape;
  const LifeReader reader(schedule, stage);
  StageBuffers all;
  all.has_slices = shape.slices > 1;
  all.in_turn = shape.batches > 1;
  all.weight_versions = schedule.weight_versions;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    std::vector<BufferCounts> uses(static_cast<std::size_t>(shape.all_micro_batches()));
    const auto pool = [&](Lifetime MicroBatchLives::*life, int BufferCounts::*which) {
      std::vector<Lifetime> lives;
      std::vector<int*> places;
      for (int i = 0; i < shape.all_micro_batches(); ++i) {
        lives.push_back(reader.of(chunk, i).*life);
        places.push_back(&(uses[static_cast<std::size_t>(i)].*which));
      }
      return assign(lives, places);
    };
    BufferCounts counts;
    counts.slots = pool(&MicroBatchLives::slot, &BufferCounts::slots);
    counts.inputs = pool(&MicroBatchLives::input, &BufferCounts::inputs);
    counts.gradients = pool(&MicroBatchLives::gradient, &BufferCounts::gradients);
    counts.outputs = pool(&MicroBatchLives::output, &BufferCounts::outputs);
    counts.input_gradients = pool(&MicroBatchLives::input_gradient, &BufferCounts::input_gradients);
    counts.weight_inputs = pool(&MicroBatchLives::weight_inputs, &BufferCounts::weight_inputs);
    all.chunks.push_back(counts);
    if (!all.in_turn) all.uses.push_back(std::move(uses));
  }
  return all;
}

}  // namespace lockstep::plan
