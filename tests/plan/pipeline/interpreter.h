// Runs a step schedule on numbers, the way a trainer does: the oracle of the verifier.
//
// A stage's weights are one number per chunk; forward and backward hash what they read. A message
// delivers whatever its sender has into the slot that its receiver names, without comparing the two
// sides. Gradients are added up in one place, which an update empties. So a schedule means the same
// as a plain loop over micro-batches when it ends with the same weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/plan/pipeline/step_schedule.h"

namespace lockstep::plan::testing {

using Value = std::uint64_t;
using Weights = std::vector<Value>;  // by virtual stage

inline Value mixed(std::initializer_list<Value> parts) {
  Value hash = 0x9e3779b97f4a7c15;
  for (const Value part : parts) {
    hash ^= part + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
    hash *= 0xbf58476d1ce4e5b9;
    hash ^= hash >> 31;
  }
  return hash;
}

inline Value first_weight(int virtual_stage) {
  return mixed({100, static_cast<Value>(virtual_stage)});
}
inline Value tokens_of(int micro_batch, int slice) {
  return mixed({200, static_cast<Value>(micro_batch), static_cast<Value>(slice)});
}
inline Value forward_value(Value weight, Value input, Value context) {
  return mixed({1, weight, input, context});
}
inline Value input_gradient_value(Value weight, Value input, Value gradient, Value later) {
  return mixed({2, weight, input, gradient, later});
}
inline Value weight_gradient_value(Value input, Value gradient, Value later) {
  return mixed({3, input, gradient, later});
}
inline Value loss_gradient(Value output) { return mixed({4, output}); }
// An update knows which one it is: learning rates follow a schedule.
inline Value updated(Value weight, Value gradient, int batch) {
  return mixed({5, weight, gradient, static_cast<Value>(batch)});
}

// The final weights by a plain loop. Batch t uses the weights that have seen t - staleness updates.
inline Weights plain_loop(const PipelineShape& shape, int staleness) {
  const int stages = shape.virtual_stages();
  std::vector<Weights> versions(1);
  for (int s = 0; s < stages; ++s) versions[0].push_back(first_weight(s));
  for (int batch = 0; batch < shape.batches; ++batch) {
    const Weights& weights = versions[static_cast<std::size_t>(std::max(batch - staleness, 0))];
    Weights sums(static_cast<std::size_t>(stages));
    for (int i = batch * shape.micro_batches; i < (batch + 1) * shape.micro_batches; ++i) {
      using Slices = std::vector<Value>;
      const auto slices = static_cast<std::size_t>(shape.slices);
      std::vector<Slices> inputs(1);
      for (int k = 0; k < shape.slices; ++k) inputs[0].push_back(tokens_of(i, k));
      for (std::size_t s = 0; s < weights.size(); ++s) {
        Slices outputs;
        for (std::size_t k = 0; k < slices; ++k) {
          outputs.push_back(forward_value(weights[s], inputs[s][k], k == 0 ? 0 : outputs[k - 1]));
        }
        inputs.push_back(outputs);
      }
      Slices gradients;
      for (const Value output : inputs.back()) gradients.push_back(loss_gradient(output));
      for (std::size_t s = weights.size(); s-- > 0;) {
        Slices before(slices);
        for (std::size_t k = slices; k-- > 0;) {
          const Value later = k + 1 == slices ? 0 : before[k + 1];
          before[k] = input_gradient_value(weights[s], inputs[s][k], gradients[k], later);
          sums[s] += weight_gradient_value(inputs[s][k], gradients[k], later);
        }
        gradients = before;
      }
    }
    Weights next;
    for (std::size_t s = 0; s < sums.size(); ++s) {
      next.push_back(updated(versions.back()[s], sums[s], batch));
    }
    versions.push_back(next);
  }
  return versions.back();
}

class Interpreter {
 public:
  explicit Interpreter(const StepSchedule& schedule)
      : schedule_(schedule), shape_(schedule.shape), ranks_(schedule.stages.size()) {
    for (int stage = 0; stage < shape_.stages; ++stage) {
      Rank& rank = ranks_[static_cast<std::size_t>(stage)];
      for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
        rank.versions[{0, chunk}] = first_weight(shape_.virtual_stage(stage, chunk));
      }
    }
  }

  // The final weights; nothing when the stages wait forever or read what is not there.
  std::optional<Weights> run() {
    while (!failed_ && advance_all()) {
    }
    Weights weights(static_cast<std::size_t>(shape_.virtual_stages()));
    for (int stage = 0; stage < shape_.stages; ++stage) {
      Rank& rank = ranks_[static_cast<std::size_t>(stage)];
      if (failed_ || rank.position < actions(stage).size()) return std::nullopt;
      for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
        weights[static_cast<std::size_t>(shape_.virtual_stage(stage, chunk))] =
            rank.versions[{rank.updates, chunk}];
      }
    }
    return weights;
  }

 private:
  using Place = std::tuple<int, int, int>;  // chunk, micro-batch, slice
  struct Rank {
    std::size_t position = 0;
    int updates = 0;
    std::map<Place, Value> received_activations;
    std::map<Place, Value> received_gradients;
    std::map<Place, Value> inputs;  // kept for backward
    std::map<Place, Value> outputs;
    std::map<Place, Value> output_gradients;
    std::map<Place, Value> input_gradients;
    std::map<int, Value> sums;                      // by chunk
    std::map<std::pair<int, int>, Value> versions;  // update, chunk
  };

  const std::vector<Action>& actions(int stage) const {
    return schedule_.stages[static_cast<std::size_t>(stage)];
  }
  const Action* at(int stage) const {
    const std::size_t position = ranks_[static_cast<std::size_t>(stage)].position;
    return position < actions(stage).size() ? &actions(stage)[position] : nullptr;
  }
  template <class Key>
  Value read(const std::map<Key, Value>& values, const Key& key) {
    const auto found = values.find(key);
    if (found == values.end()) failed_ = true;
    return failed_ ? 0 : found->second;
  }

  bool advance_all() {
    bool progress = false;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      while (!failed_ && advance(stage)) progress = true;
    }
    return progress;
  }

  bool advance(int stage) {
    const Action* action = at(stage);
    if (action == nullptr) return false;
    Rank& rank = ranks_[static_cast<std::size_t>(stage)];
    const Place place{action->chunk, action->micro_batch, action->slice};
    switch (action->kind) {
      case ActionKind::kForward:
        forward(stage, rank, *action, place);
        break;
      case ActionKind::kBackward:
        backward_input(stage, rank, *action, place);
        backward_weight(rank, place);
        break;
      case ActionKind::kBackwardInput:
        backward_input(stage, rank, *action, place);
        break;
      case ActionKind::kBackwardWeight:
        backward_weight(rank, place);
        break;
      case ActionKind::kUpdate:
        update(rank, shape_.batch_of(action->micro_batch));
        break;
      case ActionKind::kSendActivation:
      case ActionKind::kSendGradient:
        return deliver(stage, *action);
      default:
        return false;  // the sender delivers
    }
    ++rank.position;
    return true;
  }

  void forward(int stage, Rank& rank, const Action& action, const Place& place) {
    const auto& [chunk, micro_batch, slice] = place;
    const int self = shape_.virtual_stage(stage, chunk);
    Value input = tokens_of(micro_batch, slice);
    if (self > 0) {
      input = shape_.stage_of(self - 1) == stage
                  ? read(rank.outputs, {chunk - 1, micro_batch, slice})
                  : read(rank.received_activations, place);
    }
    const Value context = slice == 0 ? 0 : read(rank.outputs, {chunk, micro_batch, slice - 1});
    rank.inputs[place] = input;
    rank.outputs[place] = forward_value(weight(rank, action), input, context);
  }

  void backward_input(int stage, Rank& rank, const Action& action, const Place& place) {
    const auto& [chunk, micro_batch, slice] = place;
    const int self = shape_.virtual_stage(stage, chunk);
    Value gradient = 0;
    if (self + 1 == shape_.virtual_stages()) {
      gradient = loss_gradient(read(rank.outputs, place));
    } else {
      gradient = shape_.stage_of(self + 1) == stage
                     ? read(rank.input_gradients, {chunk + 1, micro_batch, slice})
                     : read(rank.received_gradients, place);
    }
    rank.output_gradients[place] = gradient;
    rank.input_gradients[place] = input_gradient_value(
        weight(rank, action), read(rank.inputs, place), gradient, later_of(rank, place));
  }

  void backward_weight(Rank& rank, const Place& place) {
    const Value gradient = read(rank.output_gradients, place);
    rank.sums[std::get<0>(place)] +=
        weight_gradient_value(read(rank.inputs, place), gradient, later_of(rank, place));
  }

  Value later_of(Rank& rank, const Place& place) {
    const auto& [chunk, micro_batch, slice] = place;
    if (slice + 1 >= shape_.slices) return 0;
    return read(rank.input_gradients, {chunk, micro_batch, slice + 1});
  }

  Value weight(Rank& rank, const Action& action) {
    return read(rank.versions, {action.version, action.chunk});
  }

  void update(Rank& rank, int batch) {
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      rank.versions[{rank.updates + 1, chunk}] =
          updated(rank.versions[{rank.updates, chunk}], rank.sums[chunk], batch);
      rank.versions.erase({rank.updates + 1 - schedule_.weight_versions, chunk});
    }
    rank.sums.clear();
    ++rank.updates;
  }

  bool deliver(int stage, const Action& send) {
    if (send.peer < 0 || send.peer >= shape_.stages || send.peer == stage) return false;
    const Action* other = at(send.peer);
    if (other == nullptr || !is_message(other->kind) || is_send(other->kind)) return false;
    if (other->peer != stage) return false;
    Rank& from = ranks_[static_cast<std::size_t>(stage)];
    Rank& to = ranks_[static_cast<std::size_t>(send.peer)];
    const Place place{send.chunk, send.micro_batch, send.slice};
    const Value value = send.kind == ActionKind::kSendActivation
                            ? read(from.outputs, place)
                            : read(from.input_gradients, place);
    auto& slots = other->kind == ActionKind::kReceiveActivation ? to.received_activations
                                                                : to.received_gradients;
    slots[{other->chunk, other->micro_batch, other->slice}] = value;
    ++from.position;
    ++to.position;
    return true;
  }

  const StepSchedule& schedule_;
  const PipelineShape& shape_;
  std::vector<Rank> ranks_;
  bool failed_ = false;
};

}  // namespace lockstep::plan::testing
