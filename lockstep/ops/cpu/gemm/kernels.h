// What the packed product (packed.h) does in its inner loops, for one instruction set.
//
// A strip is some lines of a matrix (rows of a, columns of b), widened to float and interleaved:
// the first element of each line, then the second of each, ... A tile is the part of the output
// that the registers hold: the product of one strip of `rows` rows of a and one of `columns`
// columns of b, row by row.
#pragma once

#include <cstddef>

#include "lockstep/base/error.h"
#include "lockstep/base/simd/kernel_table.h"
#include "lockstep/ops/cpu/gemm/product.h"

namespace lockstep::cpu::gemm {

// Lines as they lie in a matrix: element p of line i at i * line_stride + p * depth_stride
// elements. One of the strides is 1.
struct Lines {
  const std::byte* data = nullptr;
  std::size_t line_stride = 0;
  std::size_t depth_stride = 0;
  std::size_t count = 0;
  std::size_t depth = 0;
};

// Where a tile belongs; tiles at the edges of the output use fewer rows and columns than they have.
struct Place {
  std::size_t row = 0;
  std::size_t column = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
};

// Memory that will be needed soon, and comes into the caches while a tile is multiplied.
struct Ahead {
  static constexpr std::size_t kMostOutputs = 5;

  // Strips: this many bytes for every step of depth.
  const std::byte* strip = nullptr;
  std::size_t strip_step = 0;
  // Where the tile is going to be finished: `rows` rows of `row_bytes` of each matrix.
  const std::byte* outputs[kMostOutputs] = {};
  std::size_t output_count = 0;
  std::size_t rows = 0;
  std::size_t row_bytes = 0;
  std::size_t row_stride = 0;
};

struct TypeKernels {
  // Lays down all strips of the lines one after the other; the last is filled up with zeros. Writes
  // nothing behind them: others may pack there.
  void (*pack_rows)(const Lines& lines, float* strips);
  void (*pack_columns)(const Lines& lines, float* strips);
  // Finishes a tile and stores it to the output, whose type this is.
  void (*finish)(const Product& product, const float* tile, const Place& place);
  // sums[i] += the sum of column i of `matrix`, which has `columns` columns every `stride`
  // elements.
  void (*add_column_sums)(const std::byte* matrix, std::size_t rows, std::size_t stride,
                          std::size_t columns, float* sums);
};

struct Kernels {
  static constexpr std::size_t kMostTile = 14 * 32;  // elements
  static constexpr std::size_t kMostVectors = 3;

  // tile = row_strip column_strip, or tile += where `add`. Sums begin at zero and run in order of
  // depth, and are then added: the same bits whatever the tile's size.
  using Multiply = void (*)(std::size_t depth, const float* row_strip, const float* column_strip,
                            float* tile, bool add, const Ahead& ahead);

  std::size_t rows = 0;  // of a tile
  std::size_t columns = 0;
  std::size_t lanes = 0;  // of a vector
  // Of the first vector of each row of a tile, of the first two, ...; behind them the tile has
  // zeros.
  Multiply multiply_vectors[kMostVectors] = {};
  // Multiplies and finishes at once: a whole tile of f32 that one block of depth makes, and whose
  // finish has no activation. The same bits.
  void (*multiply_and_finish)(std::size_t depth, const float* row_strip, const float* column_strip,
                              const Product& product, const Place& place,
                              const Ahead& ahead) = nullptr;
  TypeKernels f32, bf16, f16;

  // For a tile with `used` columns.
  Multiply multiply(std::size_t used) const { return multiply_vectors[(used - 1) / lanes]; }

  const TypeKernels& of(DType dtype) const {
    switch (dtype) {
      case DType::kF32:
        return f32;
      case DType::kBF16:
        return bf16;
      case DType::kF16:
        return f16;
      default:
        fail(ErrorCode::kInvalidArgument, "no matrix products of {}", name(dtype));
    }
  }
};

LOCKSTEP_KERNEL_TABLE(Kernels, product_kernels)

}  // namespace lockstep::cpu::gemm
