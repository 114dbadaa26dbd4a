#include "lockstep/ops/cpu/gemm/tiled.h"

#include <algorithm>

#include "lockstep/ops/cpu/gemm/aligned.h"
#include "lockstep/ops/cpu/gemm/blocks.h"

namespace lockstep::cpu::gemm {
namespace {

constexpr std::size_t kLines = TileKernels::kLines;
constexpr std::size_t kStep = TileKernels::kStep;
constexpr std::size_t kSquare = TileKernels::kSquare;

// One thread's work on its part of the output.
class TiledPart {
 public:
  TiledPart(const TileKernels& kernels, const TiledBlocks& blocks, const Product& product,
            std::byte* scratch)
      : kernels_(kernels),
        blocks_(blocks),
        product_(product),
        finish_(product.shape.output == DType::kF32 ? kernels.finish_f32 : kernels.finish_bf16),
        squares_(reinterpret_cast<float*>(scratch)),
        packed_rows_(reinterpret_cast<BFloat16*>(squares_ + blocks.squares())),
        packed_columns_(packed_rows_ + blocks.packed_rows()) {}

  void run(const Range& rows, const Range& columns) {
    kernels_.begin();
    for (std::size_t row = rows.begin; row < rows.end; row += blocks_.area_rows) {
      const Range area_rows{row, std::min(rows.end, row + blocks_.area_rows)};
      for (std::size_t column = columns.begin; column < columns.end;
           column += blocks_.area_columns) {
        run_area(area_rows, {column, std::min(columns.end, column + blocks_.area_columns)});
      }
    }
    kernels_.end();
  }

 private:
  // A depth of zero is one empty block: what is finished are zeros.
  void run_area(const Range& rows, const Range& columns) {
    const std::size_t depth = product_.shape.k;
    std::size_t from = 0;
    do {
      const Range block{from, std::min(depth, from + blocks_.depth)};
      kernels_.pack_rows(lines_of_a(rows, block), packed_rows_);
      for (std::size_t column = columns.begin; column < columns.end; column += blocks_.columns) {
        const Range some{column, std::min(columns.end, column + blocks_.columns)};
        kernels_.pack_columns(lines_of_b(some, block), packed_columns_);
        multiply(rows, some, block, squares_ + (column - columns.begin) * blocks_.area_rows);
      }
      from = block.end;
    } while (from < depth);
  }

  Lines lines_of_a(const Range& rows, const Range& block) const {
    const Matrix a = matrix_a(product_);
    return {.data = at(a, rows.begin, block.begin),
            .line_stride = a.row_stride,
            .depth_stride = a.column_stride,
            .count = rows.size(),
            .depth = block.size()};
  }
  Lines lines_of_b(const Range& columns, const Range& block) const {
    const Matrix b = matrix_b(product_);
    return {.data = at(b, block.begin, columns.begin),
            .line_stride = b.column_stride,
            .depth_stride = b.row_stride,
            .count = columns.size(),
            .depth = block.size()};
  }
  static const std::byte* at(const Matrix& matrix, std::size_t row, std::size_t column) {
    return matrix.data +
           (row * matrix.row_stride + column * matrix.column_stride) * sizeof(BFloat16);
  }

  // The squares of the packed rows and columns; where they wait, from `waiting` on. The last block
  // finishes them, each while the next one is multiplied.
  void multiply(const Range& rows, const Range& columns, const Range& block, float* waiting) {
    const bool first = block.begin == 0;
    const bool last = block.end == product_.shape.k;
    const std::size_t steps = (block.size() + kStep - 1) / kStep;
    alignas(kAlignment) float only[2][kSquare];
    std::size_t count = 0;
    Unfinished former{.product = &product_, .place = {}, .finish = finish_};
    const BFloat16* row_strip = packed_rows_;
    for (std::size_t row = rows.begin; row < rows.end; row += kLines) {
      const BFloat16* column_strip = packed_columns_;
      for (std::size_t column = columns.begin; column < columns.end; column += kLines, ++count) {
        const Place place{.row = row,
                          .column = column,
                          .rows = std::min(kLines, rows.end - row),
                          .columns = std::min(kLines, columns.end - column)};
        float* square = blocks_.waits ? waiting + count * kSquare : only[count % 2];
        if (last) prefetch(place);
        kernels_.multiply(steps, row_strip, column_strip, square, !first,
                          former.square != nullptr ? &former : nullptr);
        if (last) {
          former.square = square;
          former.place = place;
        }
        column_strip += steps * kStep * kLines;
      }
      row_strip += steps * kStep * kLines;
    }
    if (former.square != nullptr) finish_(product_, former.square, former.place);
  }

  // Asks for all that is read or written where a square is finished.
  void prefetch(const Place& place) const {
    const Finish& with = product_.finish;
    for (const std::byte* matrix : {static_cast<const std::byte*>(product_.output), with.added,
                                    with.factor, static_cast<const std::byte*>(with.derivative)}) {
      if (matrix == nullptr || (matrix == with.added && matrix == product_.output)) continue;
      const std::size_t element = size_of(product_.shape.output);
      const std::byte* at = matrix + (place.row * product_.shape.n + place.column) * element;
      for (std::size_t i = 0; i < place.rows; ++i, at += product_.shape.n * element) {
        __builtin_prefetch(at);
        __builtin_prefetch(at + place.columns * element - 1);
      }
    }
  }

  const TileKernels& kernels_;
  const TiledBlocks& blocks_;
  const Product& product_;
  FinishSquare finish_;
  float* squares_;
  BFloat16* packed_rows_;
  BFloat16* packed_columns_;
};

#if defined(__x86_64__)
class Tiled final : public Implementation {
 public:
  explicit Tiled(const Cpu& cpu) : cpu_(cpu) {}

  // Products that are too small for tiles are faster as they are.
  bool accepts(const ProductShape& shape) override {
    constexpr std::size_t kLeastProducts = std::size_t{64} * 64 * 64;
    return shape.dtype == DType::kBF16 && shape.m * shape.n * shape.k >= kLeastProducts;
  }
  std::string name(const ProductShape&) override { return "tiled, amx"; }
  std::size_t scratch(const ProductShape& shape) override {
    return tiled_scratch(cpu_, plan_tiled(shape, cpu_.team.size()));
  }
  void run(const Product& product, std::byte* scratch) override {
    run_tiled(kAmxTiles, cpu_, plan_tiled(product.shape, cpu_.team.size()), product, scratch);
  }

 private:
  Cpu cpu_;
};
#endif

}  // namespace

TiledBlocks plan_tiled(const ProductShape& shape, int threads) {
  // Packing an element takes about as long as this many products in tiles.
  constexpr std::size_t kPackingCost = 128;
  const OutputParts parts = split_output(shape, threads, kLines, kLines, kPackingCost);
  TiledBlocks blocks{.row_parts = parts.row_parts, .column_parts = parts.column_parts};
  blocks.waits = shape.k > TiledBlocks::kWholeDepth;
  std::size_t most_rows = TiledBlocks::kMostArea;
  std::size_t most_columns = TiledBlocks::kMostArea;
  if (blocks.waits) {
    blocks.depth = even_piece(shape.k, TiledBlocks::kMostDepth, kStep);
  } else {
    blocks.depth = rounded_up(shape.k, kStep);
    most_rows = TiledBlocks::kMostPacked / std::max(kStep, blocks.depth) / kLines * kLines;
    most_columns = std::max(kLines, parts.columns);
  }
  blocks.area_rows = even_piece(parts.rows, most_rows, kLines);
  blocks.area_columns = even_piece(parts.columns, most_columns, kLines);
  blocks.columns = even_piece(blocks.area_columns, TiledBlocks::kMostColumns, kLines);
  return blocks;
}

std::size_t tiled_scratch(const Cpu& cpu, const TiledBlocks& blocks) {
  return static_cast<std::size_t>(cpu.team.size()) * blocks.bytes() + kAlignment - 1;
}

void run_tiled(const TileKernels& kernels, const Cpu& cpu, const TiledBlocks& blocks,
               const Product& product, std::byte* scratch) {
  const ProductShape& shape = product.shape;
  std::byte* memory = aligned(scratch);
  cpu.team.run([&](int thread) {
    const int row_parts = static_cast<int>(blocks.row_parts);
    const int column_parts = static_cast<int>(blocks.column_parts);
    TiledPart part(kernels, blocks, product,
                   memory + static_cast<std::size_t>(thread) * blocks.bytes());
    part.run(share(shape.m, row_parts, thread % row_parts, kLines),
             share(shape.n, column_parts, thread / row_parts, kLines));
  });
}

std::unique_ptr<Implementation> make_tiled([[maybe_unused]] const Cpu& cpu) {
#if defined(__x86_64__)
  if (cpu.isa == Isa::kAmx) return std::make_unique<Tiled>(cpu);
#endif
  return nullptr;
}

}  // namespace lockstep::cpu::gemm
