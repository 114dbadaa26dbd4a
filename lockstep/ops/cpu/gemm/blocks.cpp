#include "lockstep/ops/cpu/gemm/blocks.h"

namespace lockstep::cpu::gemm {
namespace {

// The largest of `parts` shares of whole tiles.
std::size_t largest_share(std::size_t count, std::size_t parts, std::size_t grain) {
  const std::size_t grains = (count + grain - 1) / grain;
  return (grains + parts - 1) / parts * grain;
}

}  // namespace

OutputParts split_output(const ProductShape& shape, int threads, std::size_t row_grain,
                         std::size_t column_grain, std::size_t packing_cost) {
  OutputParts best;
  std::size_t least = 0;
  const auto all = static_cast<std::size_t>(threads);
  for (std::size_t row_parts = 1; row_parts <= all; ++row_parts) {
    if (all % row_parts != 0) continue;
    const std::size_t rows = largest_share(shape.m, row_parts, row_grain);
    const std::size_t columns = largest_share(shape.n, all / row_parts, column_grain);
    const std::size_t cost = rows * columns + packing_cost * (rows + columns);
    if (row_parts > 1 && cost >= least) continue;
    least = cost;
    best = {row_parts, all / row_parts, rows, columns};
  }
  return best;
}

Blocks plan_blocks(const Kernels& kernels, const ProductShape& shape, int threads) {
  constexpr std::size_t kPackingCost = 8;
  const OutputParts parts =
      split_output(shape, threads, kernels.rows, kernels.columns, kPackingCost);
  Blocks blocks{.row_parts = parts.row_parts, .column_parts = parts.column_parts};
  blocks.area_rows = even_piece(parts.rows, Blocks::kMostArea, kernels.rows);
  blocks.area_columns = even_piece(parts.columns, Blocks::kMostArea, kernels.columns);
  blocks.columns = std::min(blocks.area_columns, rounded_up(Blocks::kMostColumns, kernels.columns));
  blocks.depth = even_piece(shape.k, Blocks::kMostDepth, 1);
  // Sixteen floats are a line of the cache, with which each part begins.
  blocks.packed_rows = rounded_up(blocks.area_rows * blocks.depth + Kernels::kSlack, 16);
  blocks.packed_columns = rounded_up(blocks.columns * blocks.depth + Kernels::kSlack, 16);
  if (blocks.depth < shape.k) blocks.sums = rounded_up(blocks.area_rows * blocks.area_columns, 16);
  return blocks;
}

}  // namespace lockstep::cpu::gemm
