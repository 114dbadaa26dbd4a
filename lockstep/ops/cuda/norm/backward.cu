// The gradient of a norm in two kernels.
//
// The first runs with a fixed number of blocks, which take rows in turn: a warp has a row of up to
// 768 columns, a block a wider one. A thread has the same columns in all of its rows, so it
// accumulates their share of dgain and dbias in registers. At the end every block writes one row of
// such partial sums to the workspace, [dgain or dbias][block][column], and the second kernel sums
// these in a fixed order. The number of blocks depends on the shape and the GPU, so results repeat
// to the bit.
//
// For wider rows, and rows that do not fit vectors, a block keeps its partial sums in the
// workspace.
#include <algorithm>

#include "lockstep/ops/cuda/device/clear.h"
#include "lockstep/ops/cuda/norm/backward_rows.cuh"
#include "lockstep/ops/cuda/norm/norm.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

using namespace norm_backward;

// A parameter's gradient, of any type that it may have.
struct Gradient {
  void* at;  // null: not wanted
  DType type;
  bool overwrite;
};

template <class G>
__device__ __forceinline__ void accumulate(G& at, float value, bool overwrite) {
  at = from_float<G>((overwrite ? 0 : to_float(at)) + value);
}
__device__ __forceinline__ void accumulate(const Gradient& gradient, int i, float value) {
  if (gradient.type == DType::kBF16) {
    accumulate(static_cast<__nv_bfloat16*>(gradient.at)[i], value, gradient.overwrite);
  } else if (gradient.type == DType::kF16) {
    accumulate(static_cast<__half*>(gradient.at)[i], value, gradient.overwrite);
  } else {
    accumulate(static_cast<float*>(gradient.at)[i], value, gradient.overwrite);
  }
}

constexpr const char* kName = "norm_backward";
constexpr int kAddRows = 32;

// blockIdx.y: dgain or dbias. A block has 32 columns; kAddRows warps take the blocks' rows in turn.
__global__ void __launch_bounds__(32 * kAddRows)
    add_partials(const float* partials, int blocks, int width, Gradient dgain, Gradient dbias) {
  __shared__ float parts[kAddRows][33];
  start_next();
  wait_for_previous();
  const auto lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(blockIdx.x) * 32 + lane;
  const Gradient gradient = blockIdx.y == 0 ? dgain : dbias;
  const float* from = partials + std::size_t{blockIdx.y} * static_cast<std::size_t>(blocks) *
                                     static_cast<std::size_t>(width);
  float sum = 0;
  if (column < width) {
#pragma unroll 4
    for (int i = warp; i < blocks; i += kAddRows) {
      sum += from[static_cast<std::size_t>(i) * static_cast<std::size_t>(width) + column];
    }
  }
  parts[warp][lane] = sum;
  __syncthreads();
  sum = warp_sum(parts[lane][warp]);  // of the column that is now this warp's
  const int own = static_cast<int>(blockIdx.x) * 32 + warp;
  if (lane == 0 && own < width) accumulate(gradient, own, sum);
}

// As many blocks as go through the rows, where a multiprocessor has `each` at once.
std::size_t block_count(const Context& context, std::int64_t rows, std::size_t each) {
  return std::min(static_cast<std::size_t>(rows),
                  each * static_cast<std::size_t>(std::max(context.multiprocessors, 1)));
}
constexpr std::size_t kMostEach = 8;

template <int kColumns, class T, bool kDrops>
std::size_t by_warps(const Context& context, const Rows<T, kDrops>& call) {
  using Blocks = WarpBlocks<T, kColumns>;
  const auto groups =
      static_cast<std::int64_t>(divide_up(static_cast<std::size_t>(call.rows), Blocks::kWarps));
  const std::size_t blocks = block_count(context, groups, Blocks::kEach);
  launch_overlapped<Rows<T, kDrops>>(context, kName, by_warps_kernel<T, kDrops, kColumns>,
                                     static_cast<unsigned>(blocks), Blocks::kWarps * 32, 0, call);
  return blocks;
}

template <int kThreads, int kColumns, class T, bool kDrops>
std::size_t by_blocks(const Context& context, const Rows<T, kDrops>& call) {
  const std::size_t blocks = block_count(context, call.rows, kColumns == 8 ? 1024 / kThreads : 1);
  launch_overlapped<Rows<T, kDrops>>(context, kName,
                                     by_blocks_kernel<T, kDrops, kThreads, kColumns>,
                                     static_cast<unsigned>(blocks), kThreads, 0, call);
  return blocks;
}

// Queues the first kernel; the number of its blocks.
template <class T, bool kDrops>
std::size_t go_through_rows(const Context& context, const Rows<T, kDrops>& call, bool vectors) {
  const int width = call.width;
  if (vectors && width <= 32 * 8) return by_warps<8>(context, call);
  if (vectors && width <= 32 * 16) return by_warps<16>(context, call);
  if (vectors && width <= 32 * 24) return by_warps<24>(context, call);
  if (vectors && width <= 128 * 8) return by_blocks<128, 8>(context, call);
  if (vectors && width <= 256 * 8) return by_blocks<256, 8>(context, call);
  if (vectors && width <= 512 * 8) return by_blocks<512, 8>(context, call);
  if (vectors && width <= 1024 * 8) return by_blocks<1024, 8>(context, call);
  if constexpr (sizeof(T) == 2) {
    if (vectors && width <= 512 * 32) return by_blocks<512, 32>(context, call);
  }
  const std::size_t blocks = block_count(context, call.rows, kMostEach);
  launch_overlapped<Rows<T, kDrops>>(context, kName, any_rows_kernel<T, kDrops>,
                                     static_cast<unsigned>(blocks), kAnyThreads, 0, call);
  return blocks;
}

template <class T, bool kDrops>
std::size_t run_typed(const Context& context, const ops::NormBackward& call, float* partials) {
  constexpr int N = kPerVector<T>;
  const Rows<T, kDrops> rows{.dy = data_of<const T>(call.dy),
                             .sum = data_of<const T>(call.sum),
                             .gain = data_of<const T>(call.gain),
                             .mean = data_of<const float>(call.mean),
                             .rstd = data_of<const float>(call.rstd),
                             .dresidual = data_of<const T>(call.dresidual),
                             .dsum = data_of<T>(call.dsum),
                             .dbranch = data_of<T>(call.dbranch),
                             .dropout = kDrops ? dropout_arg(call.dropout) : DropoutArg{},
                             .partials = partials,
                             .biased = ops::is_given(call.dbias),
                             .rows = call.dy.shape()[0],
                             .width = static_cast<int>(call.dy.shape()[1]),
                             .above = call.above_one ? 1.0f : 0.0f};
  const bool vectors =
      rows.width % N == 0 &&
      all_allow_packs<T, N>(call.dy, call.sum, call.gain, call.dresidual, call.dsum, call.dbranch);
  return go_through_rows(context, rows, vectors);
}

}  // namespace

std::size_t norm_scratch(const Context& context, std::int64_t rows, std::int64_t width) {
  return 2 * block_count(context, rows, kMostEach) * static_cast<std::size_t>(width) *
         sizeof(float);
}

void run(const Context& context, const ops::NormBackward& call) {
  if (call.dy.elements() == 0) {
    if (call.overwrite) clear(context, {call.dgain, call.dbias});
    return;
  }
  const std::int64_t rows = call.dy.shape()[0], width = call.dy.shape()[1];
  if (context.workspace_bytes < norm_scratch(context, rows, width)) {
    check(cudaErrorMemoryAllocation, "norm_backward without enough workspace");
  }
  auto* partials = reinterpret_cast<float*>(context.workspace);
  const bool drops = ops::is_given(call.dbranch) && call.dropout.probability > 0;
  std::size_t blocks = 0;
  with_compute_type(call.dy.dtype(), [&]<class T>(TypeTag<T>) {
    blocks = drops ? run_typed<T, true>(context, call, partials)
                   : run_typed<T, false>(context, call, partials);
  });
  const bool biased = ops::is_given(call.dbias);
  const dim3 grid(static_cast<unsigned>(divide_up(static_cast<std::size_t>(width), 32)),
                  biased ? 2 : 1);
  launch_overlapped<const float*, int, int, Gradient, Gradient>(
      context, "norm_backward: parameters", add_partials, grid, dim3(32, kAddRows), 0, partials,
      static_cast<int>(blocks), static_cast<int>(width),
      {call.dgain.data(), call.dgain.dtype(), call.overwrite},
      {call.dbias.data(), call.dbias.dtype(), call.overwrite});
}

}  // namespace lockstep::cuda
