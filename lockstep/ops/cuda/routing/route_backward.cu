// A warp has a token. The gradient of a logit is a sum over the token's pairs, which is made in
// their order, and of the balance, which needs the softmax of all logits.
#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/routing/routing.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kTokenWarps = 8;

template <class T>
struct Gradients {
  const T* logits;
  const std::int32_t* experts;
  const std::int32_t* rows;
  const float* weights;
  const float* dweights;
  const float* balance;  // may be null
  T* dlogits;            // may be logits
  std::int64_t tokens;
  int count;   // experts
  int chosen;  // of a token
  Faults* faults;
};

// Of one pair; rows outside all pairs have nothing.
struct PairGradient {
  int expert = -1;
  float weight = 0;
  float product = 0;  // of the weight and its gradient
};

template <class T>
__device__ __forceinline__ PairGradient gradient_of(const Gradients<T>& call, std::int64_t pair) {
  const std::int64_t pairs = call.tokens * call.chosen;
  const std::int32_t row = call.rows[pair], expert = call.experts[pair];
  if (expert < 0 || expert >= call.count) atomicMin(&call.faults->type, fault(pair, expert));
  if (row < 0 || row >= pairs) {
    atomicMin(&call.faults->token, fault(pair, row));
    return {};
  }
  const float weight = call.weights[row];
  return {expert, weight, weight * call.dweights[row]};
}

template <class T>
__global__ void __launch_bounds__(kTokenWarps * 32) route_backward_kernel(Gradients<T> call) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t token = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.x / 32;
  if (token >= call.tokens) return;
  const T* logits = call.logits + token * call.count;
  T* dlogits = call.dlogits + token * call.count;
  const std::int64_t first_pair = token * call.chosen;

  float mean = 0;
  for (int j = lane; j < call.chosen; j += 32) mean += gradient_of(call, first_pair + j).product;
  mean = warp_sum(mean);

  float most = -INFINITY, total = 0, balanced = 0;
  if (call.balance != nullptr) {
    for (int e = lane; e < call.count; e += 32) most = fmaxf(most, to_float(logits[e]));
    most = warp_max(most);
    for (int e = lane; e < call.count; e += 32) {
      const float p = expf(to_float(logits[e]) - most);
      total += p;
      balanced += p * call.balance[e];
    }
    total = warp_sum(total);
    balanced = warp_sum(balanced) / total;
  }

  // All lanes stay together: they exchange the pairs.
  for (int first = 0; first < call.count; first += 32) {
    const int expert = first + lane;
    float sum = 0;
    for (int base = 0; base < call.chosen; base += 32) {
      const int count = min(32, call.chosen - base);
      const PairGradient own =
          lane < count ? gradient_of(call, first_pair + base + lane) : PairGradient{};
      const float term = own.product - own.weight * mean;
      for (int j = 0; j < count; ++j) {
        const int of = __shfl_sync(kAllLanes, own.expert, j);
        const float added = __shfl_sync(kAllLanes, term, j);
        if (of == expert) sum += added;
      }
    }
    if (expert >= call.count) continue;
    if (call.balance != nullptr) {
      const float p = expf(to_float(logits[expert]) - most) / total;
      sum += p * (call.balance[expert] - balanced);
    }
    dlogits[expert] = from_float<T>(sum);
  }
}

}  // namespace

void run(const Context& context, const ops::RouteBackward& call) {
  const std::int64_t tokens = call.logits.shape()[0];
  if (tokens == 0) return;
  with_compute_type(call.logits.dtype(), [&]<class T>(TypeTag<T>) {
    const Gradients<T> arguments{.logits = data_of<const T>(call.logits),
                                 .experts = data_of<const std::int32_t>(call.experts),
                                 .rows = data_of<const std::int32_t>(call.rows),
                                 .weights = data_of<const float>(call.weights),
                                 .dweights = data_of<const float>(call.dweights),
                                 .balance = data_of<const float>(call.balance),
                                 .dlogits = data_of<T>(call.dlogits),
                                 .tokens = tokens,
                                 .count = static_cast<int>(call.logits.shape()[1]),
                                 .chosen = static_cast<int>(call.experts.shape()[1]),
                                 .faults = context.faults};
    const auto blocks =
        static_cast<unsigned>(divide_up(static_cast<std::size_t>(tokens), kTokenWarps));
    route_backward_kernel<T><<<blocks, kTokenWarps * 32, 0, context.stream>>>(arguments);
    check_launch("route_backward");
  });
}

}  // namespace lockstep::cuda
