#include "lockstep/train/run/nonfinite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/math/half.h"
#include "lockstep/nn/block_listener.h"
#include "lockstep/nn/replica/state_stream.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/tensor/host_view.h"

namespace lockstep::train {
namespace {

float value_of(float x) { return x; }
template <class T>
float value_of(T x) {
  return to_float(x);
}

template <class T>
bool all_finite(const Tensor& tensor) {
  const HostView view(tensor);
  const auto elements = view.as<T>();
  return std::all_of(elements.begin(), elements.end(),
                     [](T x) { return std::isfinite(value_of(x)); });
}

bool is_finite(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return all_finite<float>(tensor);
    case DType::kBF16:
      return all_finite<BFloat16>(tensor);
    case DType::kF16:
      return all_finite<Half>(tensor);
    default:
      return true;
  }
}

class NonfiniteFinder : public nn::BlockListener {
 public:
  // `next` is called for blocks too; may be nullptr.
  NonfiniteFinder(nn::Replica& replica, nn::BlockListener* next) : replica_(replica), next_(next) {}

  const Nonfinite& found() const { return found_; }
  void look(const Tensor& tensor, std::size_t block, int phase, std::string_view does) {
    if (!found_.text.empty() || !ops::is_given(tensor)) return;
    replica_.ops().synchronize();
    if (is_finite(tensor)) return;
    const nn::Model& model = replica_.model();
    const auto number = static_cast<double>(model.number(block));
    found_ = {.text = fmt::format("block {} {}", model.block(block).name(), does),
              .order = 2 * phase + (phase == kBackward ? -1 : 1) / (number + 2)};
  }

  // In the order in which a step comes to them.
  static constexpr int kParameters = 0;
  static constexpr int kForward = 1;
  static constexpr int kBackward = 2;

  void before_forward(std::size_t block) override {
    if (next_ != nullptr) next_->before_forward(block);
  }
  void after_forward(std::size_t block) override {
    look(replica_.output(block), block, kForward, "is the first that hands on infinities or NaN");
    if (next_ != nullptr) next_->after_forward(block);
  }
  void before_backward(std::size_t block) override {
    if (next_ != nullptr) next_->before_backward(block);
  }
  // Before others are added to them; hence what a block finishes with early is not handed on.
  void after_backward(std::size_t block) override {
    look(replica_.gradients_written(block), block, kBackward,
         "is the first whose gradients hold infinities or NaN");
    if (next_ != nullptr) next_->after_backward(block);
  }

 private:
  nn::Replica& replica_;
  nn::BlockListener* next_;
  Nonfinite found_;
};

bool one_has_found(RunGroup& group, const NonfiniteFinder& finder) {
  const double mine = finder.found().text.empty() ? 0 : 1;
  return std::ranges::any_of(group.numbers(std::span(&mine, 1)), [](double x) { return x != 0; });
}

std::size_t most_of_all(RunGroup& group, std::size_t count) {
  const auto mine = static_cast<double>(count);
  return static_cast<std::size_t>(std::ranges::max(group.numbers(std::span(&mine, 1))));
}

}  // namespace

Nonfinite first_nonfinite(nn::Replica& replica, parallel::Strategy& strategy, RunGroup& group,
                          std::span<const nn::Batch> micro_batches, const nn::MicroBatch& first) {
  const nn::Sharding& sharding = replica.plan().sharding;
  const bool at_once = sharding.parameters || sharding.gradients;
  parallel::TierMover* const mover = strategy.mover();
  NonfiniteFinder finder(replica, at_once ? static_cast<nn::BlockListener*>(&strategy) : mover);
  nn::StateStream stream(replica, nn::StateAccess::kRead, &nn::States::parameters);
  while (stream.next()) {
    finder.look(stream.states().parameters, stream.block(), NonfiniteFinder::kParameters,
                "has parameters that are infinite or NaN");
  }
  nn::MicroBatch micro_batch = first;
  replica.set_listener(&finder);
  const std::size_t count = micro_batches.size();
  const bool agrees = at_once || replica.tensor_group().size > 1 ||
                      replica.setup().context.size > 1 || replica.model().stages() > 1 ||
                      replica.expert_axis() != nullptr;
  const std::size_t rounds = agrees ? most_of_all(group, count) : count;
  for (std::size_t i = 0; i < rounds; ++i) {
    if (agrees ? one_has_found(group, finder) : !finder.found().text.empty()) break;
    const auto index = static_cast<std::int64_t>(i);
    if (i >= count) {
      if (at_once) strategy.stand_in_for_micro_batch(index);
      continue;
    }
    if (at_once) {
      strategy.begin_micro_batch(index, static_cast<std::int64_t>(count));
    } else {
      if (mover != nullptr) mover->begin_micro_batch(false);  // waits for gradients on their way
      replica.zero_gradients();
    }
    const Tensor losses = replica.forward_backward(micro_batches[i], micro_batch);
    finder.look(losses, replica.model().size() - 1, NonfiniteFinder::kForward,
                "makes losses that are infinite or NaN");
    micro_batch.first_sequence += static_cast<std::uint64_t>(micro_batches[i].shape.batch);
  }
  replica.set_listener(nullptr);
  return finder.found();
}

}  // namespace lockstep::train
