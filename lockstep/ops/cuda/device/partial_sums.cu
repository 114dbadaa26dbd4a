// 8 threads share a column: each sums every eighth of its partial sums, and one of them sums these
// eight.
#include "lockstep/ops/cuda/device/partial_sums.h"

#include "lockstep/ops/cuda/device/overlap.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

template <class G>
__global__ void __launch_bounds__(kThreads)
    add_partials_kernel(const float* partials, std::int64_t splits, std::int64_t columns, G* dbias,
                        bool overwrite) {
  __shared__ float of_parts[kWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int part = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t column = std::int64_t{blockIdx.x} * 32 + lane;
  start_next();
  wait_for_previous();
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t split = part; split < splits; split += kWarps) {
      sum += partials[split * columns + column];
    }
  }
  of_parts[part][lane] = sum;
  __syncthreads();
  if (part != 0 || column >= columns) return;
  float total = 0;
#pragma unroll
  for (int p = 0; p < kWarps; ++p) total += of_parts[p][lane];
  const float before = overwrite ? 0 : to_float(dbias[column]);
  dbias[column] = from_float<G>(before + total);
}

}  // namespace

void add_partial_sums(const Context& context, const float* partials, std::int64_t splits,
                      const Tensor& dbias, bool overwrite) {
  const auto columns = static_cast<std::int64_t>(dbias.elements());
  with_compute_type(dbias.dtype(), [&](auto tag) {
    using G = typename decltype(tag)::type;
    const auto blocks = static_cast<unsigned>(divide_up(static_cast<std::size_t>(columns), 32));
    launch_overlapped<const float*, std::int64_t, std::int64_t, G*, bool>(
        context, "add_partials", add_partials_kernel<G>, blocks, kThreads, 0, partials, splits,
        columns, data_of<G>(dbias), overwrite);
  });
}

}  // namespace lockstep::cuda
