#include "lockstep/ops/cuda/device/overlap.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/elementwise/activation.cuh"
#include "lockstep/ops/cuda/linear/gelu_slopes.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;

template <int N, class T>
__device__ __forceinline__ void multiply(const T* z, T* dx) {
  const Floats<N> at = load_floats<N>(z);
  Floats<N> gradient = load_floats<N>(dx);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    float slope;
    gelu_tanh<kExponentialFor<T>>(at[i], slope);
    gradient[i] = __fmul_rn(gradient[i], slope);
  }
  store_floats(dx, gradient);
}

template <int N, class T>
__global__ void __launch_bounds__(kThreads)
    gelu_slopes_kernel(const T* z, T* dx, std::size_t count) {
  const std::size_t first = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  start_next();
  wait_for_previous();
  if (first + N <= count) {
    multiply<N>(z + first, dx + first);
    return;
  }
  for (std::size_t i = first; i < count; ++i) multiply<1>(z + i, dx + i);
}

template <int N, class T>
void launch(const Context& context, const Tensor& z, const Tensor& dx) {
  const std::size_t count = dx.elements();
  const auto blocks = static_cast<unsigned>(divide_up(count, std::size_t{kThreads} * N));
  launch_overlapped<const T*, T*, std::size_t>(context, "gelu_slopes", gelu_slopes_kernel<N, T>,
                                               blocks, kThreads, 0, data_of<const T>(z),
                                               data_of<T>(dx), count);
}

}  // namespace

void multiply_by_gelu_slopes(const Context& context, const Tensor& z, const Tensor& dx) {
  if (dx.elements() == 0) return;
  with_compute_type(dx.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (all_allow_packs<T, kPerVector<T>>(z, dx)) {
      launch<kPerVector<T>, T>(context, z, dx);
    } else {
      launch<1, T>(context, z, dx);
    }
  });
}

}  // namespace lockstep::cuda
