#include "lockstep/ops/cpu/gemm/blocks.h"

namespace lockstep::cpu::gemm {
namespace {

// The largest of `parts` shares of whole tiles.
std::size_t largest_share(std::size_t count, std::size_t parts, std::size_t grain) {
  const std::size_t grains = (count + grain - 1) / grain;
  return (grains + parts - 1) / parts * grain;
}

}  // namespace

Blocks plan_blocks(const Kernels& kernels, const ProductShape& shape, int threads) {
  // A step of depth costs a thread its share's products and the packing of its rows and columns;
  // packing an element takes about as long as this many products.
  constexpr std::size_t kPackingCost = 8;
  Blocks blocks;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t least = 0;
  const auto all = static_cast<std::size_t>(threads);
  for (std::size_t row_parts = 1; row_parts <= all; ++row_parts) {
    if (all % row_parts != 0) continue;
    const std::size_t share_rows = largest_share(shape.m, row_parts, kernels.rows);
    const std::size_t share_columns = largest_share(shape.n, all / row_parts, kernels.columns);
    const std::size_t cost =
        share_rows * share_columns + kPackingCost * (share_rows + share_columns);
    if (row_parts > 1 && cost >= least) continue;
    least = cost;
    rows = share_rows;
    columns = share_columns;
    blocks.row_parts = row_parts;
    blocks.column_parts = all / row_parts;
  }
  blocks.area_rows = even_piece(rows, Blocks::kMostArea, kernels.rows);
  blocks.area_columns = even_piece(columns, Blocks::kMostArea, kernels.columns);
  blocks.columns = std::min(blocks.area_columns, rounded_up(Blocks::kMostColumns, kernels.columns));
  blocks.depth = even_piece(shape.k, Blocks::kMostDepth, 1);
  // Sixteen floats are a line of the cache, with which each part begins.
  blocks.packed_rows = rounded_up(blocks.area_rows * blocks.depth + Kernels::kSlack, 16);
  blocks.packed_columns = rounded_up(blocks.columns * blocks.depth + Kernels::kSlack, 16);
  if (blocks.depth < shape.k) blocks.sums = rounded_up(blocks.area_rows * blocks.area_columns, 16);
  return blocks;
}

}  // namespace lockstep::cpu::gemm
