// Three kernels choose experts and number the routed rows.
//
// First a warp chooses the experts of a token, one after the other: the next is the first of those
// that come after the one before, in the order of logits. The shares of the pairs wait in the place
// of their rows.
//
// The pairs are then cut into chunks. A block counts the pairs of one expert in one chunk; another
// one numbers them, from the number of all pairs that come before: those of smaller experts, and
// those of earlier chunks. So equal experts keep the order of their pairs.
#include <climits>

#include <algorithm>

#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/routing/routing.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kTokenWarps = 8;

template <class T>
struct Choice {
  const T* logits;
  std::int32_t* experts;
  float* shares;  // in the memory of rows
  std::int64_t tokens;
  int count;   // experts
  int chosen;  // of a token
};

struct Candidate {
  float logit;
  int expert;

  // Whether it comes before another: by its logit, NaN last, then by its number.
  __device__ bool before(const Candidate& other) const {
    const bool wrong = isnan(logit), other_wrong = isnan(other.logit);
    if (wrong != other_wrong) return other_wrong;
    if (!wrong && logit != other.logit) return logit > other.logit;
    return expert < other.expert;
  }
};

__device__ __forceinline__ Candidate first_of_warp(Candidate one) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Candidate other{__shfl_xor_sync(kAllLanes, one.logit, distance),
                          __shfl_xor_sync(kAllLanes, one.expert, distance)};
    if (other.before(one)) one = other;
  }
  return one;
}

template <class T>
__global__ void __launch_bounds__(kTokenWarps * 32) choose_experts(Choice<T> call) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t token = std::int64_t{blockIdx.x} * kTokenWarps + threadIdx.x / 32;
  if (token >= call.tokens) return;
  const T* logits = call.logits + token * call.count;
  std::int32_t* experts = call.experts + token * call.chosen;
  float* shares = call.shares + token * call.chosen;
  Candidate last{INFINITY, -1};  // comes before all
  float most = 0, sum = 0;
  for (int j = 0; j < call.chosen; ++j) {
    Candidate next{NAN, INT_MAX};  // comes after all
    for (int expert = lane; expert < call.count; expert += 32) {
      const Candidate one{to_float(logits[expert]), expert};
      if (last.before(one) && one.before(next)) next = one;
    }
    last = first_of_warp(next);
    if (j == 0) most = last.logit;
    sum += expf(last.logit - most);
    if (lane == 0) experts[j] = last.expert;
  }
  __syncwarp();
  for (int j = lane; j < call.chosen; j += 32) {
    shares[j] = expf(to_float(logits[experts[j]]) - most) / sum;
  }
}

constexpr int kPairThreads = 512;
constexpr int kPairsEach = 4;
constexpr int kPairTile = kPairThreads * kPairsEach;
constexpr std::int64_t kLeastChunk = 4 * kPairTile;
constexpr std::int64_t kMostChunks = 64;

// Block (expert, chunk).
struct Numbering {
  const std::int32_t* experts;
  std::int32_t* rows;  // hold the shares, as f32, until they hold rows
  std::int32_t* of_rows;
  std::int32_t* counts;
  float* weights;
  std::int32_t* of_chunks;  // [experts][chunks]
  std::int64_t pairs;
  std::int64_t chunk;  // pairs of a chunk

  __device__ std::int64_t first() const { return std::int64_t{blockIdx.y} * chunk; }
  __device__ std::int64_t end() const { return min(first() + chunk, pairs); }
  __device__ bool has(std::int64_t pair) const {
    return pair < end() && experts[pair] == static_cast<std::int32_t>(blockIdx.x);
  }
};

__global__ void __launch_bounds__(kPairThreads) count_pairs(Numbering call) {
  __shared__ int partials[32];
  int count = 0;
  for (std::int64_t pair = call.first() + threadIdx.x; pair < call.end(); pair += kPairThreads) {
    if (call.has(pair)) ++count;
  }
  count = block_sum(count, partials);
  if (threadIdx.x == 0) call.of_chunks[blockIdx.x * gridDim.y + blockIdx.y] = count;
}

// The sum of the numbers of the threads before this one; `total` is that of all.
__device__ __forceinline__ int sum_before(int number, int* of_warps, int& total) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int up_to = number;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(kAllLanes, up_to, distance);
    if (lane >= distance) up_to += before;
  }
  __syncthreads();
  if (lane == 31) of_warps[warp] = up_to;
  __syncthreads();
  int sum = up_to - number;
  total = 0;
  for (int w = 0; w < kPairThreads / 32; ++w) {
    if (w < warp) sum += of_warps[w];
    total += of_warps[w];
  }
  return sum;
}

__global__ void __launch_bounds__(kPairThreads) number_pairs(Numbering call) {
  __shared__ int partials[32];
  const auto thread = static_cast<int>(threadIdx.x);
  const auto chunks = static_cast<int>(gridDim.y);
  const int own = static_cast<int>(blockIdx.x) * chunks;
  const int here = own + static_cast<int>(blockIdx.y);
  int earlier = 0, of_expert = 0;
  for (int i = thread; i < here; i += kPairThreads) earlier += call.of_chunks[i];
  for (int i = own + thread; i < own + chunks; i += kPairThreads) of_expert += call.of_chunks[i];
  int next = block_sum(earlier, partials);
  of_expert = block_sum(of_expert, partials);
  if (thread == 0 && blockIdx.y == 0) call.counts[blockIdx.x] = of_expert;

  for (std::int64_t tile = call.first(); tile < call.end(); tile += kPairTile) {
    const std::int64_t first = tile + thread * kPairsEach;
    bool mine[kPairsEach];
    int count = 0;
#pragma unroll
    for (int i = 0; i < kPairsEach; ++i) {
      mine[i] = call.has(first + i);
      if (mine[i]) ++count;
    }
    int total = 0;
    int row = next + sum_before(count, partials, total);
    next += total;
#pragma unroll
    for (int i = 0; i < kPairsEach; ++i) {
      if (!mine[i]) continue;
      const std::int64_t pair = first + i;
      call.weights[row] = __int_as_float(call.rows[pair]);
      call.of_rows[row] = static_cast<std::int32_t>(pair);
      call.rows[pair] = row;
      ++row;
    }
  }
}

std::int64_t chunks_of(std::int64_t pairs, std::int64_t experts) {
  const std::int64_t by_pairs = (pairs + kLeastChunk - 1) / kLeastChunk;
  const std::int64_t by_memory = kMostExperts / experts;
  return std::max<std::int64_t>(1, std::min({by_pairs, by_memory, kMostChunks}));
}

}  // namespace

void run(const Context& context, const ops::Route& call) {
  const std::int64_t tokens = call.logits.shape()[0];
  const std::int64_t experts = call.logits.shape()[1];
  const std::int64_t chosen = call.experts.shape()[1];
  if (tokens > 0) {
    with_compute_type(call.logits.dtype(), [&]<class T>(TypeTag<T>) {
      const Choice<T> choice{.logits = data_of<const T>(call.logits),
                             .experts = data_of<std::int32_t>(call.experts),
                             .shares = data_of<float>(call.rows),
                             .tokens = tokens,
                             .count = static_cast<int>(experts),
                             .chosen = static_cast<int>(chosen)};
      const auto blocks =
          static_cast<unsigned>(divide_up(static_cast<std::size_t>(tokens), kTokenWarps));
      choose_experts<T><<<blocks, kTokenWarps * 32, 0, context.stream>>>(choice);
      check_launch("route: choice");
    });
  }
  const std::int64_t pairs = tokens * chosen;
  const std::int64_t chunks = chunks_of(pairs, experts);
  const Numbering numbering{.experts = data_of<const std::int32_t>(call.experts),
                            .rows = data_of<std::int32_t>(call.rows),
                            .of_rows = data_of<std::int32_t>(call.pairs),
                            .counts = data_of<std::int32_t>(call.counts),
                            .weights = data_of<float>(call.weights),
                            .of_chunks = reinterpret_cast<std::int32_t*>(context.partials),
                            .pairs = pairs,
                            .chunk = (pairs + chunks - 1) / chunks};
  const dim3 grid(static_cast<unsigned>(experts), static_cast<unsigned>(chunks));
  count_pairs<<<grid, kPairThreads, 0, context.stream>>>(numbering);
  check_launch("route: counts");
  number_pairs<<<grid, kPairThreads, 0, context.stream>>>(numbering);
  check_launch("route: numbers");
}

}  // namespace lockstep::cuda
