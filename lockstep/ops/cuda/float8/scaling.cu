// Updates scales with a thread per tensor, and multiplies 8-bit matrices by plain loops with a
// thread per element of the result.
#include <cuda_fp8.h>

#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/float8/float8.h"
#include "lockstep/ops/cuda/float8/scale.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    update_scaling_kernel(float* all, float* amax, int count) {
  const int index = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (index >= count) return;
  float* const scaling = all + index * ops::kScaling;
  const float newest = amax[index];
  amax[index] = 0.0f;
  if (!is_finite(newest)) return;
  float* const history = scaling + ops::kHistory;
  float most = newest;
  for (int i = ops::kAmaxHistory - 1; i > 0; --i) {
    history[i] = history[i - 1];
    most = fmaxf(most, history[i]);
  }
  history[0] = newest;
  set_scale(scaling, most);
}

__device__ __forceinline__ float number(std::uint8_t byte, Float8 format) {
  return __half2float(
      __half(__nv_cvt_fp8_to_halfraw(byte, format == Float8::kE4M3 ? __NV_E4M3 : __NV_E5M2)));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_scaled_matmul_kernel(const std::uint8_t* a, const std::uint8_t* b, Float8 a_format,
                               Float8 b_format, const float* a_scaling, const float* b_scaling,
                               const T* bias, const T* residual, T* y, std::int64_t rows,
                               std::int64_t columns, std::int64_t inner) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= rows * columns) return;
  const std::int64_t row = at / columns;
  const std::int64_t column = at % columns;
  float sum = 0;
  for (std::int64_t i = 0; i < inner; ++i) {
    sum += number(a[row * inner + i], a_format) * number(b[column * inner + i], b_format);
  }
  sum = sum * a_scaling[ops::kInverse] * b_scaling[ops::kInverse];
  if (bias != nullptr) sum += to_float(bias[column]);
  if (residual != nullptr) sum += to_float(residual[at]);
  y[at] = from_float<T>(sum);
}

}  // namespace

void run(const Context& context, const ops::UpdateScaling& call) {
  const auto count = static_cast<int>(call.amax.elements());
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  update_scaling_kernel<<<blocks, kThreads, 0, context.stream>>>(data_of<float>(call.scaling),
                                                                 data_of<float>(call.amax), count);
  check_launch("update_scaling");
}

void plain_scaled_matmul(const Context& context, const ops::ScaledMatmul& call) {
  if (!ops::is_given(call.y)) return;
  const auto blocks = static_cast<unsigned>(divide_up(call.y.elements(), kThreads));
  with_compute_type(call.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    plain_scaled_matmul_kernel<T><<<blocks, kThreads, 0, context.stream>>>(
        data_of<const std::uint8_t>(call.a), data_of<const std::uint8_t>(call.b), call.a_format,
        call.b_format, data_of<const float>(call.a_scaling), data_of<const float>(call.b_scaling),
        data_of<const T>(call.bias), data_of<const T>(call.residual), data_of<T>(call.y),
        call.y.shape()[0], call.y.shape()[1], call.a.shape()[1]);
    check_launch("plain_scaled_matmul");
  });
}

}  // namespace lockstep::cuda
