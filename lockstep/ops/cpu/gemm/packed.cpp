#include "lockstep/ops/cpu/gemm/packed.h"

#include <algorithm>

#include "lockstep/ops/cpu/gemm/aligned.h"
#include "lockstep/ops/cpu/gemm/blocks.h"
#include "lockstep/ops/cpu/gemm/kernels.h"

namespace lockstep::cpu::gemm {
namespace {

// One thread's work on its part of the output.
class Part {
 public:
  Part(const Kernels& kernels, const Blocks& blocks, const Product& product, float* scratch)
      : kernels_(kernels),
        blocks_(blocks),
        product_(product),
        inputs_(kernels.of(product.shape.dtype)),
        outputs_(kernels.of(product.shape.output)),
        packed_rows_(scratch),
        packed_columns_(packed_rows_ + blocks.packed_rows),
        sums_(packed_columns_ + blocks.packed_columns) {}

  void run(const Range& rows, const Range& columns) {
    for (std::size_t row = rows.begin; row < rows.end; row += blocks_.area_rows) {
      const Range area_rows{row, std::min(rows.end, row + blocks_.area_rows)};
      for (std::size_t column = columns.begin; column < columns.end;
           column += blocks_.area_columns) {
        run_area(area_rows, {column, std::min(columns.end, column + blocks_.area_columns)});
      }
    }
  }

 private:
  // A depth of zero is one empty block: what is finished are zeros.
  void run_area(const Range& rows, const Range& columns) {
    const std::size_t depth = product_.shape.k;
    std::size_t from = 0;
    do {
      const Range block{from, std::min(depth, from + blocks_.depth)};
      pack_rows(rows, block);
      for (std::size_t column = columns.begin; column < columns.end; column += blocks_.columns) {
        const Range some{column, std::min(columns.end, column + blocks_.columns)};
        pack_columns(some, block);
        run_block(rows, some, block, (column - columns.begin) * blocks_.area_rows);
      }
      from = block.end;
    } while (from < depth);
  }

  void pack_rows(const Range& rows, const Range& block) {
    const Matrix a = matrix_a(product_);
    inputs_.pack_rows({.data = at(a, rows.begin, block.begin),
                       .line_stride = a.row_stride,
                       .depth_stride = a.column_stride,
                       .count = rows.size(),
                       .depth = block.size()},
                      packed_rows_);
  }

  void pack_columns(const Range& columns, const Range& block) {
    const Matrix b = matrix_b(product_);
    inputs_.pack_columns({.data = at(b, block.begin, columns.begin),
                          .line_stride = b.column_stride,
                          .depth_stride = b.row_stride,
                          .count = columns.size(),
                          .depth = block.size()},
                         packed_columns_);
  }

  const std::byte* at(const Matrix& matrix, std::size_t row, std::size_t column) const {
    return matrix.data + (row * matrix.row_stride + column * matrix.column_stride) *
                             size_of(product_.shape.dtype);
  }

  // The tiles of the packed rows and columns; their sums wait from `first_sum` on, tile by tile.
  void run_block(const Range& rows, const Range& columns, const Range& block,
                 std::size_t first_sum) {
    const bool first = block.begin == 0;
    const bool last = block.end == product_.shape.k;
    alignas(kAlignment) float only[Kernels::kMostTile];
    float* tile = first && last ? only : sums_ + first_sum;
    const float* row_strip = packed_rows_;
    for (std::size_t row = rows.begin; row < rows.end; row += kernels_.rows) {
      const float* column_strip = packed_columns_;
      for (std::size_t column = columns.begin; column < columns.end; column += kernels_.columns) {
        kernels_.multiply(block.size(), row_strip, column_strip, tile, !first);
        if (last) {
          outputs_.finish(product_, tile,
                          {.row = row,
                           .column = column,
                           .rows = std::min(kernels_.rows, rows.end - row),
                           .columns = std::min(kernels_.columns, columns.end - column)});
        }
        if (tile != only) tile += kernels_.rows * kernels_.columns;
        column_strip += block.size() * kernels_.columns;
      }
      row_strip += block.size() * kernels_.rows;
    }
  }

  const Kernels& kernels_;
  const Blocks& blocks_;
  const Product& product_;
  const TypeKernels& inputs_;
  const TypeKernels& outputs_;
  float* packed_rows_;
  float* packed_columns_;
  float* sums_;
};

}  // namespace

std::size_t packed_scratch(const Cpu& cpu, const ProductShape& shape) {
  const Blocks blocks = plan_blocks(kernels_of(cpu.isa), shape, cpu.team.size());
  return static_cast<std::size_t>(cpu.team.size()) * blocks.floats() * sizeof(float) + kAlignment -
         1;
}

void run_packed(const Cpu& cpu, const Product& product, std::byte* scratch) {
  const ProductShape& shape = product.shape;
  const Kernels& kernels = kernels_of(cpu.isa);
  const Blocks blocks = plan_blocks(kernels, shape, cpu.team.size());
  auto* memory = reinterpret_cast<float*>(aligned(scratch));
  cpu.team.run([&](int thread) {
    const auto index = static_cast<std::size_t>(thread);
    const int row_parts = static_cast<int>(blocks.row_parts);
    const int column_parts = static_cast<int>(blocks.column_parts);
    Part part(kernels, blocks, product, memory + index * blocks.floats());
    part.run(share(shape.m, row_parts, thread % row_parts, kernels.rows),
             share(shape.n, column_parts, thread / row_parts, kernels.columns));
  });
}

}  // namespace lockstep::cpu::gemm
