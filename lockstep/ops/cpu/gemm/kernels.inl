// The kernels of the packed product for one instruction set. Part of a file of kernels (vector.inl)
// that chooses the size of a tile: make_kernels<rows, vectors per row>().
#pragma once

#include <algorithm>

#include "lockstep/ops/cpu/gemm/finish.inl"
#include "lockstep/ops/cpu/gemm/kernels.h"
#include "lockstep/ops/cpu/gemm/pack.inl"
#include "lockstep/ops/cpu/gemm/tile.inl"
#include "lockstep/ops/cpu/vector.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

// Rows are added up in groups first: fewer roundings of large sums.
template <class T>
void add_column_sums(const std::byte* matrix, std::size_t rows, std::size_t stride,
                     std::size_t columns, float* sums) {
  constexpr std::size_t kGroup = 64;
  const T* first = reinterpret_cast<const T*>(matrix);
  for (std::size_t row = 0; row < rows; row += kGroup) {
    const std::size_t group = std::min(kGroup, rows - row);
    for_vectors(columns, [&](std::size_t i, auto part) {
      const T* from = first + row * stride + i;
      Floats sum = splat(0);
      for (std::size_t p = 0; p < group; ++p) sum = sum + load_some(from + p * stride, part);
      store_some(sums + i, load_some(sums + i, part) + sum, part);
    });
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
  return {.rows = rows,
          .columns = columns,
          .multiply = multiply<rows, vectors>,
          .f32 = make_type_kernels<rows, vectors, float>(),
          .bf16 = make_type_kernels<rows, vectors, BFloat16>(),
          .f16 = make_type_kernels<rows, vectors, Half>()};
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
