// Rows of sums by distance in kernels (bias_sums.h).
#pragma once

#include <cstdint>

#include "lockstep/ops/cuda/attention/bias_sums.h"
#include "lockstep/ops/cuda/attention/call.cuh"

namespace lockstep::cuda::attention {

// The row of a strip, with the sums of the farthest distances, which most scores may have, in
// registers of each thread until the end.
struct BiasRow {
  DistanceBias bias;
  float* row;
  float before = 0;  // of keys so far before the query, or farther
  float behind = 0;

  __device__ __forceinline__ BiasRow(const BiasSums& sums, const DistanceBias& bias_,
                                     const Sizes& sizes, int sequence, int head, int strip)
      : bias(bias_),
        row(sums.rows +
            ((static_cast<std::int64_t>(sequence) * sizes.heads + head) * sums.strips + strip) *
                bias_.distances()) {}

  // Sets the row to zero, by threads `thread` of `threads`.
  __device__ __forceinline__ void clear(int thread, int threads) const {
    for (int i = thread; i < bias.distances(); i += threads) row[i] = 0;
  }
  // Of calls without a barrier between them, no two threads may have the same distance.
  __device__ __forceinline__ void add(int distance, float sum) {
    if (distance <= -bias.farthest) {
      before += sum;
    } else if (distance >= bias.farthest) {
      behind += sum;
    } else {
      row[bias.farthest + distance] += sum;
    }
  }
  // Stores the sums of the farthest distances, those of all threads. One distance may be both.
  __device__ __forceinline__ void finish(float all_before, float all_behind) const {
    if (bias.farthest == 0) {
      row[0] = all_before + all_behind;
    } else {
      row[0] = all_before;
      row[2 * bias.farthest] = all_behind;
    }
  }
};

}  // namespace lockstep::cuda::attention
