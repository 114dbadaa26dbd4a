#include <algorithm>

#include "lockstep/ops/cuda/attention/bias_sums.cuh"
#include "lockstep/ops/cuda/attention/statistics.h"

namespace lockstep::cuda::attention {
namespace {

constexpr int kColumns = 32;  // distances of a block
constexpr int kRuns = 8;      // of rows, which are summed apart
constexpr int kMergeThreads = kColumns * kRuns;

// A block has some distances of one head. Thread (column, run) sums every kRuns-th row of the head,
// over all sequences; then the first run adds the sums of the others in order.
__global__ void __launch_bounds__(kMergeThreads)
    merge_kernel(const float* rows, float* dbias, int batch, int heads, int strips, int distances) {
  __shared__ float sums[kRuns][kColumns];
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int run = static_cast<int>(threadIdx.x) / kColumns;
  const int head = static_cast<int>(blockIdx.x) % heads;
  const int distance = static_cast<int>(blockIdx.x) / heads * kColumns + column;
  float sum = 0;
  if (distance < distances) {
    const std::int64_t all = static_cast<std::int64_t>(batch) * strips;
#pragma unroll 4
    for (std::int64_t i = run; i < all; i += kRuns) {
      const std::int64_t row = (i / strips * heads + head) * strips + i % strips;
      sum += rows[row * distances + distance];
    }
  }
  sums[run][column] = sum;
  __syncthreads();
  if (run != 0 || distance >= distances) return;
#pragma unroll
  for (int other = 1; other < kRuns; ++other) sum += sums[other][column];
  dbias[static_cast<std::int64_t>(head) * distances + distance] = sum;
}

}  // namespace

std::size_t bias_sums_bytes(const ops::AttentionShape& shape) {
  constexpr std::int64_t kBlockQueries = kStripQueries * kBlockStrips;
  const std::int64_t blocks = (shape.queries + kBlockQueries - 1) / kBlockQueries;
  return workspace_bytes(shape.batch * shape.heads * blocks * kBlockStrips * shape.distances,
                         sizeof(float));
}

BiasSums bias_sums(const Context& context, const ops::AttentionBackward& call, int strips) {
  if (call.shape.distances == 0) return {};
  const std::size_t before = statistics_bytes(call.shape);
  std::byte* memory = workspace(context, before + bias_sums_bytes(call.shape));
  return {reinterpret_cast<float*>(memory + before), strips};
}

void merge_bias_sums(const Context& context, const ops::AttentionBackward& call,
                     const BiasSums& sums) {
  const ops::AttentionShape& shape = call.shape;
  if (shape.distances == 0) return;
  const std::int64_t blocks = shape.heads * ((shape.distances + kColumns - 1) / kColumns);
  launch<const float*, float*, int, int, int, int>(
      "attention_bias_sums", merge_kernel, blocks, kMergeThreads, 0, context.stream, sums.rows,
      reinterpret_cast<float*>(call.dbias.data()), static_cast<int>(shape.batch),
      static_cast<int>(shape.heads), sums.strips, static_cast<int>(shape.distances));
}

}  // namespace lockstep::cuda::attention
