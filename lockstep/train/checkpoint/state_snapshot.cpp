#include "lockstep/train/checkpoint/state_snapshot.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/available_memory.h"
#include "lockstep/base/text/units.h"
#include "lockstep/ops/arguments.h"

namespace lockstep::train {
namespace {

std::size_t bytes_of(const std::vector<Tensor>& tensors) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

}  // namespace

std::unique_ptr<StateSnapshot> StateSnapshot::make(const nn::Replica& replica) {
  const nn::States& states = replica.states();
  std::vector<Tensor> on_gpu;
  bool has_all = replica.state_file() == nullptr;
  for (const Tensor& one : {states.master, states.first_moment, states.second_moment,
                            states.velocity, replica.scaling()}) {
    if (!ops::is_given(one)) continue;
    if (one.device() != Device{}) {
      on_gpu.push_back(one);
    } else {
      has_all = false;
    }
  }
  if (on_gpu.empty()) return nullptr;
  const std::size_t bytes = bytes_of(on_gpu);
  if (const std::size_t free = available_memory_bytes(); free / 2 < bytes) {
    fail(ErrorCode::kSystem, "the host has {} of free memory, less than twice the {} of the states",
         format_bytes(static_cast<double>(free)), format_bytes(static_cast<double>(bytes)));
  }
  return std::unique_ptr<StateSnapshot>(new StateSnapshot(std::move(on_gpu), has_all));
}

StateSnapshot::StateSnapshot(std::vector<Tensor> states, bool has_all)
    : states_(std::move(states)),
      has_all_(has_all),
      copy_(bytes_of(states_)),
      stream_(states_.front().device()) {}

void StateSnapshot::take() {
  std::size_t first = 0;
  for (const Tensor& state : states_) {
    const Tensor to = copy_.tensor(state.dtype(), state.shape(), first);
    stream_.run([&] { copy(to, state); });
    first += state.bytes();
  }
  stream_.synchronize();
}

Tensor StateSnapshot::of(const Tensor& elements) const {
  if (elements.device() == Device{}) return elements;
  std::size_t first = 0;
  for (const Tensor& state : states_) {
    if (elements.data() >= state.data() && elements.data() < state.data() + state.bytes()) {
      const auto within = static_cast<std::size_t>(elements.data() - state.data());
      return copy_.tensor(elements.dtype(), elements.shape(), first + within);
    }
    first += state.bytes();
  }
  return elements;
}

}  // namespace lockstep::train
