// Copying and combining what ranks have in their memory, by all threads of a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/comm/cuda/combine.cuh"
#include "lockstep/comm/reduce_op.h"

namespace lockstep::cuda {

inline constexpr int kThreads = 512;        // of a block
inline constexpr std::size_t kVector = 16;  // bytes

// Reads that no cache of this processor answers with older values.
template <class V>
__device__ V fresh(const V* from) {
  return __ldcv(from);
}
template <>
inline __device__ __nv_bfloat16 fresh(const __nv_bfloat16* from) {
  const auto bits = __ldcv(reinterpret_cast<const unsigned short*>(from));
  return __ushort_as_bfloat16(bits);
}
template <>
inline __device__ __half fresh(const __half* from) {
  return __ushort_as_half(__ldcv(reinterpret_cast<const unsigned short*>(from)));
}
template <>
inline __device__ std::int8_t fresh(const std::int8_t* from) {
  return static_cast<std::int8_t>(__ldcv(reinterpret_cast<const signed char*>(from)));
}
template <>
inline __device__ std::int64_t fresh(const std::int64_t* from) {
  return static_cast<std::int64_t>(__ldcv(reinterpret_cast<const long long*>(from)));
}

struct Range {
  std::size_t first;
  std::size_t end;
};

// Part `part` of `parts` of [0, count), in units of `unit`.
inline __device__ Range part_of(std::size_t count, std::size_t unit, std::size_t part,
                                std::size_t parts) {
  const std::size_t units = (count + unit - 1) / unit;
  const std::size_t each = (units + parts - 1) / parts * unit;
  const std::size_t first = min(part * each, count);
  return {first, min(first + each, count)};
}

// What one rank gives: kUnroll vectors of each thread, `stride` bytes apart.
template <class T, int kUnroll>
struct Vectors {
  static constexpr int kCount = kUnroll * static_cast<int>(kVector / sizeof(T));
  union {
    uint4 vectors[kUnroll];
    T elements[kCount];
  };

  __device__ void read(const T* from) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      vectors[u] = fresh(reinterpret_cast<const uint4*>(from) + kThreads * u);
    }
  }
  __device__ void write(T* to) const {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) reinterpret_cast<uint4*>(to)[kThreads * u] = vectors[u];
  }
};

// Element k of ranks [kFirst, kFirst + kRanks), as a balanced tree.
template <int kFirst, int kRanks, class T, int kUnroll>
__device__ typename Wide<T>::type tree_sum(const Vectors<T, kUnroll>* given, int k) {
  if constexpr (kRanks == 1) {
    return widen(given[kFirst].elements[k]);
  } else {
    return add(tree_sum<kFirst, kRanks / 2>(given, k),
               tree_sum<kFirst + kRanks / 2, kRanks / 2>(given, k));
  }
}

// Sums of 2, 4 or 8 ranks: all loads first.
template <class T, int kRanks, int kUnroll>
__device__ void sum_tile(const T* const* sources, T* out, std::size_t own, float share) {
  Vectors<T, kUnroll> given[kRanks];
#pragma unroll
  for (int r = 0; r < kRanks; ++r) given[r].read(sources[r] + own);
  Vectors<T, kUnroll> sums;
#pragma unroll
  for (int k = 0; k < sums.kCount; ++k) {
    auto sum = tree_sum<0, kRanks>(given, k);
    if (share != 1) sum *= static_cast<decltype(sum)>(share);
    sums.elements[k] = narrow<T>(sum);
  }
  sums.write(out + own);
}

// The elements of a range, which begins at a vector, that make whole tiles; returns the next one.
// `share` is a power of two, so that multiplying by it is dividing.
template <class T, int kRanks>
__device__ std::size_t sum_tiles(const T* const* sources, T* out, Range range, float share) {
  constexpr std::size_t kEach = kVector / sizeof(T);
  constexpr int kUnroll = 8 / kRanks;
  constexpr std::size_t kRow = std::size_t{kThreads} * kEach;
  std::size_t i = range.first;
  const std::size_t own = std::size_t{threadIdx.x} * kEach;
  for (; i + kRow * kUnroll <= range.end; i += kRow * kUnroll) {
    sum_tile<T, kRanks, kUnroll>(sources, out, i + own, share);
  }
  for (; i + kRow <= range.end; i += kRow) {
    sum_tile<T, kRanks, 1>(sources, out, i + own, share);
  }
  // The last vectors have a thread each.
  if (const std::size_t left = (range.end - i) / kEach; left > 0) {
    if (threadIdx.x < left) sum_tile<T, kRanks, 1>(sources, out, i + own, share);
    i += left * kEach;
  }
  return i;
}

template <class T>
__device__ bool all_begin_at_vectors(const T* const* sources, int ranks, const T* out,
                                     std::size_t first) {
  auto bits = reinterpret_cast<std::uintptr_t>(out + first);
  for (int r = 0; r < ranks; ++r) bits |= reinterpret_cast<std::uintptr_t>(sources[r] + first);
  return bits % kVector == 0;
}

// out[i] = all sources' [i] combined, for i in the range; by all threads of the block. Sums of
// floating-point numbers, which are frequent, take vectors. Not inlined: it takes long to compile,
// and three kernels call it.
template <class T, bool kSums>
__device__ __noinline__ void combine_range(const T* const* sources, int ranks, T* out, Range range,
                                           ReduceOp::Kind op) {
  using W = typename Wide<T>::type;
  if constexpr (kSums && std::is_same_v<W, float>) {
    if (all_begin_at_vectors(sources, ranks, out, range.first)) {
      const float share = op == ReduceOp::kMean ? 1.0f / static_cast<float>(ranks) : 1.0f;
      if (ranks == 2) range.first = sum_tiles<T, 2>(sources, out, range, share);
      if (ranks == 4) range.first = sum_tiles<T, 4>(sources, out, range, share);
      if (ranks == 8) range.first = sum_tiles<T, 8>(sources, out, range, share);
    }
  }
  for (std::size_t i = range.first + threadIdx.x; i < range.end; i += kThreads) {
    Tree<T, kSums> tree;
    for (int r = 0; r < ranks; ++r) tree.add(r, widen(fresh(sources[r] + i)), op);
    out[i] = narrow<T>(tree.finish(ranks, op));
  }
}

// By all threads of the block.
__device__ __noinline__ void copy_range(std::byte* to, const std::byte* from, Range range) {
  if (to == from) return;
  constexpr int kUnroll = 4;
  std::size_t i = range.first;
  const auto bits =
      reinterpret_cast<std::uintptr_t>(to + i) | reinterpret_cast<std::uintptr_t>(from + i);
  if (bits % kVector == 0) {
    constexpr std::size_t kTile = std::size_t{kThreads} * kVector * kUnroll;
    for (; i + kTile <= range.end; i += kTile) {
      const std::size_t own = i + std::size_t{threadIdx.x} * kVector;
      uint4 read[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        read[u] =
            fresh(reinterpret_cast<const uint4*>(from + own + std::size_t{kThreads} * kVector * u));
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        *reinterpret_cast<uint4*>(to + own + std::size_t{kThreads} * kVector * u) = read[u];
      }
    }
    const std::size_t end = i + (range.end - i) / kVector * kVector;
    for (std::size_t own = i + std::size_t{threadIdx.x} * kVector; own < end;
         own += std::size_t{kThreads} * kVector) {
      *reinterpret_cast<uint4*>(to + own) = fresh(reinterpret_cast<const uint4*>(from + own));
    }
    i = end;
  }
  if (bits % 4 == 0) {
    for (std::size_t k = i + std::size_t{threadIdx.x} * 4; k + 4 <= range.end; k += kThreads * 4) {
      *reinterpret_cast<unsigned*>(to + k) = fresh(reinterpret_cast<const unsigned*>(from + k));
    }
    i += (range.end - i) / 4 * 4;
  }
  for (i += threadIdx.x; i < range.end; i += kThreads) {
    *reinterpret_cast<unsigned char*>(to + i) =
        fresh(reinterpret_cast<const unsigned char*>(from + i));
  }
}

}  // namespace lockstep::cuda
