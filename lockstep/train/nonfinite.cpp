#include "lockstep/train/nonfinite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/half.h"
#include "lockstep/nn/block_listener.h"

namespace lockstep::train {
namespace {

float value_of(float x) { return x; }
template <class T>
float value_of(T x) {
  return to_float(x);
}

template <class T>
bool all_finite(const Tensor& tensor) {
  const auto elements = tensor.as<const T>();
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
  explicit NonfiniteFinder(nn::Replica& replica) : replica_(replica) {}

  const std::string& found() const { return found_; }
  void look(const Tensor& tensor, std::size_t block, std::string_view does) {
    if (!found_.empty() || !ops::is_given(tensor)) return;
    replica_.ops().synchronize();
    if (is_finite(tensor)) return;
    found_ = fmt::format("block {} {}", replica_.model().block(block).name(), does);
  }

  void after_forward(std::size_t block) override {
    look(replica_.output(block), block, "is the first that hands on infinities or NaN");
  }
  void after_backward(std::size_t block) override {
    look(replica_.states().slice(replica_.flat().range(block)).gradients, block,
         "is the first whose gradients hold infinities or NaN");
  }

 private:
  nn::Replica& replica_;
  std::string found_;
};

}  // namespace

std::string first_nonfinite(nn::Replica& replica, std::span<const nn::Batch> micro_batches,
                            const nn::MicroBatch& first) {
  NonfiniteFinder finder(replica);
  for (std::size_t block = 0; block < replica.model().size(); ++block) {
    finder.look(replica.states().slice(replica.flat().range(block)).parameters, block,
                "has parameters that are infinite or NaN");
  }
  nn::MicroBatch micro_batch = first;
  replica.set_listener(&finder);
  for (const nn::Batch& batch : micro_batches) {
    if (!finder.found().empty()) break;
    replica.zero_gradients();
    const Tensor losses = replica.forward_backward(batch, micro_batch);
    finder.look(losses, replica.model().size() - 1, "makes losses that are infinite or NaN");
    micro_batch.first_sequence += static_cast<std::uint64_t>(batch.shape.batch);
  }
  replica.set_listener(nullptr);
  return finder.found();
}

}  // namespace lockstep::train
