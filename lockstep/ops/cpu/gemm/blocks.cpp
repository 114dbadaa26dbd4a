#include "lockstep/ops/cpu/gemm/blocks.h"

namespace lockstep::cpu::gemm {
namespace {

constexpr std::size_t kLine = 16;  // of the cache, in floats

// Lines that have as many elements as allowed, or one strip.
std::size_t lines_of(std::size_t elements, std::size_t depth, std::size_t width) {
  return std::max(width, elements / std::max<std::size_t>(1, depth) / width * width);
}

std::size_t packed(std::size_t lines, std::size_t depth) {
  return rounded_up(lines * depth, kLine);
}

}  // namespace

std::size_t Blocks::shared_floats() const { return packed(panel, stage); }
std::size_t Blocks::waiting_floats() const { return rounded_up(waiting * panel, kLine); }
std::size_t Blocks::own_floats() const { return packed(own_lines, stage); }
std::size_t Blocks::sum_floats() const {
  return stage > depth && waiting == 0 ? rounded_up(own_lines * group, kLine) : 0;
}

Blocks plan_blocks(const Kernels& kernels, const ProductShape& shape) {
  Blocks blocks;
  blocks.rows_are_shared = shape.m < shape.n;
  const std::size_t shared = std::min(shape.m, shape.n);
  const std::size_t shared_width = blocks.rows_are_shared ? kernels.rows : kernels.columns;
  const std::size_t own_width = blocks.rows_are_shared ? kernels.columns : kernels.rows;
  const std::size_t own = rounded_up(std::max(shape.m, shape.n), own_width);
  blocks.depth = even_piece(shape.k, Blocks::kMostDepth, 1);
  blocks.stage = std::min(shape.k, Blocks::kMostStage * blocks.depth);
  std::size_t panel = lines_of(Blocks::kMostPanel, blocks.stage, shared_width);
  if (blocks.stage < shape.k) {
    blocks.waiting = own;
    panel = std::min(panel, lines_of(Blocks::kMostWaiting, own, shared_width));
  }
  blocks.panel = std::max(shared_width, even_piece(shared, panel, shared_width));
  blocks.group = std::min(blocks.panel, lines_of(Blocks::kMostGroup, blocks.depth, shared_width));
  blocks.own_lines = std::min({own, rounded_up(Blocks::kMostLines, own_width),
                               lines_of(Blocks::kMostOwn, blocks.stage, own_width)});
  return blocks;
}

}  // namespace lockstep::cpu::gemm
