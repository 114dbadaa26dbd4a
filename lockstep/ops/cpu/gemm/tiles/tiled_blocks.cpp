#include "lockstep/ops/cpu/gemm/tiles/tiled_blocks.h"

#include <algorithm>

#include "lockstep/ops/cpu/gemm/aligned.h"
#include "lockstep/ops/cpu/gemm/blocks.h"
#include "lockstep/ops/cpu/gemm/tiles/tiles.h"

namespace lockstep::cpu::gemm {
namespace {

constexpr std::size_t kLines = TileKernels::kLines;
constexpr std::size_t kStep = TileKernels::kStep;

// Lines that have as many elements as allowed, or one strip.
std::size_t lines_of(std::size_t elements, std::size_t depth) {
  return std::max(kLines, elements / std::max(kStep, depth) / kLines * kLines);
}

}  // namespace

TiledBlocks plan_tiled(const ProductShape& shape) {
  TiledBlocks blocks;
  blocks.rows_are_shared = shape.m < shape.n;
  const std::size_t shared = std::min(shape.m, shape.n);
  const std::size_t own = rounded_up(std::max(shape.m, shape.n), kLines);
  const bool waits = shape.k > TiledBlocks::kWholeDepth;
  blocks.depth =
      waits ? even_piece(shape.k, TiledBlocks::kMostDepth, kStep) : rounded_up(shape.k, kStep);
  std::size_t panel = lines_of(TiledBlocks::kMostPanel, blocks.depth);
  if (waits) {
    blocks.waiting = own;
    panel = std::min(panel, lines_of(TiledBlocks::kMostWaiting, own));
  }
  blocks.panel = std::max(kLines, even_piece(shared, panel, kLines));
  blocks.group = std::min(blocks.panel, lines_of(TiledBlocks::kMostGroup, blocks.depth));
  blocks.own_lines =
      std::min({own, TiledBlocks::kMostLines, lines_of(TiledBlocks::kMostOwn, blocks.depth)});
  return blocks;
}

std::size_t TiledBlocks::bytes(int threads) const {
  const std::size_t packed = (panel + static_cast<std::size_t>(threads) * own_lines) * depth;
  return packed * sizeof(BFloat16) + waiting * panel * sizeof(float) + kAlignment - 1;
}

}  // namespace lockstep::cpu::gemm
