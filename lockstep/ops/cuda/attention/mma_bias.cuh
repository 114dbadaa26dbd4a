// Biases by distance in the kernels with tensor cores (mma.h), and the sums of their gradients.
//
// The elements of a lane in a warp's tile are in blocks of 8 by 8. With row = lane_row() and
// column = lane_column(), element `odd` of block (down, right) has, along the tile's rows and
// columns,
//
//   column - row + 8 (right - down) + odd
//
// so all blocks of one diagonal, right - down, have the same two distances.
#pragma once

#include <cstdint>

#include "lockstep/ops/cuda/attention/bias_sums.cuh"
#include "lockstep/ops/cuda/attention/mma_tile.cuh"
#include "lockstep/ops/cuda/device/reduce.cuh"

namespace lockstep::cuda::attention::mma {

// The diagonals of kM times 16 rows and kN times 8 columns: from -kBelow to kN - 1.
template <int kM, int kN>
struct Diagonals {
  static constexpr int kBelow = 2 * kM - 1;
  static constexpr int kCount = kBelow + kN;
};

// Calls f with i, j and half of each of a diagonal's blocks: elements 2 half and 2 half + 1 of
// fragment (i, j).
template <int kM, int kN, class F>
__device__ __forceinline__ void for_blocks(int diagonal, F&& f) {
#pragma unroll
  for (int i = 0; i < kM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int j = diagonal + 2 * i + half;
      if (j >= 0 && j < kN) f(i, j, half);
    }
  }
}

// Adds the biases of a head to products, which are still to be multiplied by `scale`. `row` and
// `column` are the first query and the first key, or where keys are rows the first key and the
// first query.
template <bool kKeysAreRows, int kM, int kN>
__device__ __forceinline__ void add_biases(float (&products)[kM][kN][4], const DistanceBias& bias,
                                           float one_by_scale, int head, int row, int column) {
  constexpr int kSign = kKeysAreRows ? -1 : 1;
  const float* const middle = bias.middle(head);
  const int first = kSign * (column + lane_column() - row - lane_row()) - bias.offset;
#pragma unroll
  for (int diagonal = -Diagonals<kM, kN>::kBelow; diagonal < kN; ++diagonal) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const float one = __ldg(middle + bias.place(first + kSign * (8 * diagonal + odd)));
      for_blocks<kM, kN>(diagonal, [&](int i, int j, int half) {
        float& product = products[i][j][2 * half + odd];
        product = fmaf(one, one_by_scale, product);
      });
    }
  }
}

// The gradients of a warp's scores, summed by distance. Every lane first sums the blocks of each
// diagonal. These sums meet in shared memory, one line for each of the eight rows of lanes:
//
//   staging[lane_row()][8 (diagonal + kBelow) + column]
//
// A distance then is the sum of eight elements, each a place further to the right than the one in
// the line above it.
template <int kM, int kN>
struct WarpBiasSums {
  using Shape = Diagonals<kM, kN>;
  static constexpr int kLine = 8 * Shape::kCount;
  static constexpr int kSharedBytes = 8 * kLine * 4;

  BiasRow sums;
  float* staging;

  // `shared` is that of all warps, kSharedBytes each.
  __device__ __forceinline__ WarpBiasSums(const BiasRow& row, float* shared)
      : sums(row), staging(shared + warp_of() * 8 * kLine) {}

  __device__ __forceinline__ void clear() const { sums.clear(lane_of(), 32); }

  // Of the tile from this query and key on. All lanes of the warp call it.
  __device__ __forceinline__ void add(const float (&gradients)[kM][kN][4], int query, int key) {
    __syncwarp();  // the lines of the tile before are not read any more, and its sums are stored
    float* const mine = staging + lane_row() * kLine + lane_column();
#pragma unroll
    for (int diagonal = -Shape::kBelow; diagonal < kN; ++diagonal) {
      float2 sum = make_float2(0, 0);
      for_blocks<kM, kN>(diagonal, [&](int i, int j, int half) {
        sum.x += gradients[i][j][2 * half];
        sum.y += gradients[i][j][2 * half + 1];
      });
      *reinterpret_cast<float2*>(mine + 8 * (diagonal + Shape::kBelow)) = sum;
    }
    __syncwarp();
    // Place p of line 0 is the distance of column - row = p - 8 kBelow; those left of it are of
    // places of later lines.
    const int first = sums.bias.distance(query, key) - 8 * Shape::kBelow;
#pragma unroll
    for (int turn = 0; turn < (kLine + 7 + 31) / 32; ++turn) {
      const int place = 32 * turn + lane_of() - 7;
      float sum = 0;
#pragma unroll
      for (int line = 0; line < 8; ++line) {
        const int at = place + line;
        if (at >= 0 && at < kLine) sum += staging[line * kLine + at];
      }
      if (place < kLine) sums.add(first + place, sum);
    }
  }

  __device__ __forceinline__ void finish() {
    const float before = warp_sum(sums.before), behind = warp_sum(sums.behind);
    __syncwarp();
    if (lane_of() == 0) sums.finish(before, behind);
  }
};

}  // namespace lockstep::cuda::attention::mma
