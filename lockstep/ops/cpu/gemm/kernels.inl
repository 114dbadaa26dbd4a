// The kernels of the packed product for one instruction set. Part of a file of kernels (vector.inl)
// that chooses the size of a tile: make_kernels<rows, vectors per row>().
#pragma once

#include <algorithm>
#include <utility>

#include "lockstep/base/simd/vector.inl"
#include "lockstep/ops/cpu/gemm/finish.inl"
#include "lockstep/ops/cpu/gemm/kernels.h"
#include "lockstep/ops/cpu/gemm/pack.inl"
#include "lockstep/ops/cpu/gemm/tile.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

// sums[i] += the elements of column i in `rows` rows, one after the other.
template <std::size_t rows, class T>
void add_up_rows(const T* from, std::size_t stride, std::size_t columns, float* sums) {
  for_vectors(columns, [&](std::size_t i, auto part) {
    Floats sum = load_some(sums + i, part);
#pragma GCC unroll 8
    for (std::size_t row = 0; row < rows; ++row) {
      sum += load_some(from + row * stride + i, part);
    }
    store_some(sums + i, sum, part);
  });
}

// Sums rows in groups first, which rounds large sums less often. It reads the rows of a group in
// parallel from beginning to end, which suits the CPU's prefetcher.
template <class T>
void add_column_sums(const std::byte* matrix, std::size_t rows, std::size_t stride,
                     std::size_t columns, float* sums) {
  constexpr std::size_t kGroup = 64;
  constexpr std::size_t kTogether = 8;
  constexpr std::size_t kColumns = 512;
  const T* first = reinterpret_cast<const T*>(matrix);
  for (std::size_t column = 0; column < columns; column += kColumns) {
    const std::size_t count = std::min(kColumns, columns - column);
    for (std::size_t row = 0; row < rows; row += kGroup) {
      const std::size_t end = std::min(rows, row + kGroup);
      float group[kColumns] = {};
      std::size_t at = row;
      for (; at + kTogether <= end; at += kTogether) {
        add_up_rows<kTogether>(first + at * stride + column, stride, count, group);
      }
      for (; at < end; ++at) add_up_rows<1>(first + at * stride + column, stride, count, group);
      for_vectors(count, [&](std::size_t i, auto part) {
        float* to = sums + column + i;
        store_some(to, load_some(to, part) + load_some(group + i, part), part);
      });
    }
  }
}

template <std::size_t rows, std::size_t vectors, class T>
constexpr gemm::TypeKernels make_type_kernels() {
  return {.pack_rows = pack<rows, T>,
          .pack_columns = pack<vectors * kLanes, T>,
          .finish = finish<vectors, T>,
          .add_column_sums = add_column_sums<T>};
}

template <std::size_t rows, std::size_t vectors>
constexpr gemm::Kernels make_kernels() {
  constexpr std::size_t columns = vectors * kLanes;
  static_assert(rows * columns <= gemm::Kernels::kMostTile);
  static_assert(vectors <= gemm::Kernels::kMostVectors);
  gemm::Kernels kernels{.rows = rows,
                        .columns = columns,
                        .lanes = kLanes,
                        .multiply_and_finish = multiply_and_finish<rows, vectors>,
                        .f32 = make_type_kernels<rows, vectors, float>(),
                        .bf16 = make_type_kernels<rows, vectors, BFloat16>(),
                        .f16 = make_type_kernels<rows, vectors, Half>()};
  [&]<std::size_t... used>(std::index_sequence<used...>) {
    ((kernels.multiply_vectors[used] = multiply<rows, vectors, used + 1>), ...);
  }
  (std::make_index_sequence<vectors>());
  return kernels;
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
