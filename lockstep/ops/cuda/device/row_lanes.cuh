// Rows whose elements nothing joins: a run of threads has a row, and several runs share a block. A
// thread takes every lanes-th pack of its row.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace lockstep::cuda {

struct RowLanes {
  static constexpr int kThreads = 256;

  std::int64_t rows;
  int lanes;  // threads of a row; a power of two

  RowLanes(std::int64_t rows, std::int64_t packs_per_row)
      : rows(rows),
        lanes(static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(
            std::clamp<std::int64_t>(packs_per_row, 1, std::int64_t{kThreads}))))) {}

  unsigned blocks() const {
    const std::int64_t each = kThreads / lanes;
    return static_cast<unsigned>((rows + each - 1) / each);
  }

  // Of the calling thread; a row from `rows` on has nothing.
  __device__ std::int64_t row() const {
    return std::int64_t{blockIdx.x} * (kThreads / lanes) + static_cast<int>(threadIdx.x) / lanes;
  }
  __device__ int lane() const { return static_cast<int>(threadIdx.x) % lanes; }
};

}  // namespace lockstep::cuda
