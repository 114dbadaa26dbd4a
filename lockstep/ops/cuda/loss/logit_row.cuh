// A row of logits on a GPU: its parts, and its sum of exponentials. Included by the kernels of
// loss/ alone.
#pragma once

#include <cfloat>

#include <algorithm>
#include <cstdint>

#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/elementwise/soft_cap.cuh"

namespace lockstep::cuda {

// e^x for x not above 0. For types of 16 bits the hardware's power of two is exact enough.
template <class T>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (sizeof(T) == 2) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.4426950408889634f));
    return result;
  } else {
    return expf(x);
  }
}

// A row in three parts: `head` elements, then `vectors` of N, then `tail` elements.
template <class T>
struct RowParts {
  T* row;
  int head, vectors, tail;

  __device__ RowParts(T* begin, int count) : row(begin) {
    constexpr int N = kPerVector<T>;
    const auto off = static_cast<int>(reinterpret_cast<std::uintptr_t>(begin) % 16);
    head = min(off == 0 ? 0 : static_cast<int>((16 - off) / sizeof(T)), count);
    vectors = (count - head) / N;
    tail = count - head - vectors * N;
  }
  __device__ int index_of(int vector) const { return head + vector * kPerVector<T>; }
  // The element of head and tail that a thread takes, -1 for none. They have less than 2 N.
  __device__ int single(int thread) const {
    if (thread < head) return thread;
    return thread < head + tail ? vectors * kPerVector<T> + thread : -1;
  }
};

template <class T>
__device__ void clear_row(const RowParts<T>& parts) {
  constexpr int N = kPerVector<T>;
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int single = parts.single(thread);
  if (single >= 0) parts.row[single] = from_float<T>(0.0f);
  for (int v = thread; v < parts.vectors; v += threads) {
    store_floats(parts.row + parts.index_of(v), Floats<N>{});
  }
}

// The largest logit, and the sum of e^(logit - largest).
struct RowSum {
  float most;
  double total;
};

// Of the parts of a row, for all threads of its block. `alone` is the thread's element of head and
// tail. The first `kept_vectors` vectors are left in `kept`.
template <class T>
__device__ __forceinline__ RowSum sum_of_row(const RowParts<T>& parts, int single, float alone,
                                             Pack<T, kPerVector<T>>* kept, int kept_vectors,
                                             float* partials, double* double_partials) {
  constexpr int N = kPerVector<T>;
  constexpr int kUnroll = 4;
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  // Not -infinity: logits may be -infinity, and the difference would be NaN.
  float largest = -FLT_MAX, sum = 0;
  if (single >= 0) {
    largest = fmaxf(largest, alone);
    sum = exponential<T>(alone - largest);
  }
  for (int first = thread; first < parts.vectors; first += kUnroll * threads) {
    Pack<T, N> packs[kUnroll];
    float most = largest;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int v = first + u * threads;
      if (v < parts.vectors) packs[u] = load_pack<N>(parts.row + parts.index_of(v));
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int v = first + u * threads;
      if (v < parts.vectors) {
        if (v < kept_vectors) kept[v] = packs[u];
        const Floats<N> x = to_floats(packs[u]);
#pragma unroll
        for (int e = 0; e < N; ++e) most = fmaxf(most, x[e]);
      }
    }
    sum *= exponential<T>(largest - most);
    largest = most;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * threads < parts.vectors) {
        const Floats<N> x = to_floats(packs[u]);
#pragma unroll
        for (int e = 0; e < N; ++e) sum += exponential<T>(x[e] - largest);
      }
    }
  }
  const float most = block_max(largest, partials);
  const double total =
      block_sum(static_cast<double>(sum * exponential<T>(largest - most)), double_partials);
  return {most, total};
}

// Gradients of capped logits x become those of the logits before; a cap of 0 is none.
template <int N>
__device__ __forceinline__ void through_cap(Floats<N>& gradient, const Floats<N>& x, float cap) {
  if (cap == 0) return;
#pragma unroll
  for (int e = 0; e < N; ++e) gradient[e] *= soft_cap_slope(x[e], cap);
}
__device__ __forceinline__ float through_cap(float gradient, float x, float cap) {
  return cap == 0 ? gradient : gradient * soft_cap_slope(x, cap);
}

// As many threads, in whole warps, as get at least `each` vectors each.
inline int threads_for(std::size_t vectors, std::size_t each, std::size_t most) {
  return static_cast<int>(std::clamp(divide_up(vectors, each * 32) * 32, std::size_t{32}, most));
}

}  // namespace lockstep::cuda
