// How a product is cut (packed.h).
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/ops/cpu/gemm/kernels.h"
#include "lockstep/ops/cpu/gemm/product.h"
#include "lockstep/ops/cpu/team/team.h"

namespace lockstep::cpu::gemm {

constexpr std::size_t rounded_up(std::size_t count, std::size_t grain) {
  return (count + grain - 1) / grain * grain;
}

// A count cut into pieces that are about equally large, none above `most`; both multiples of
// `grain`, the last piece aside.
constexpr std::size_t even_piece(std::size_t count, std::size_t most, std::size_t grain) {
  const std::size_t pieces = std::max<std::size_t>(1, (count + most - 1) / most);
  return rounded_up((count + pieces - 1) / pieces, grain);
}

// Rows and columns are multiples of those of a tile.
struct Blocks {
  // A strip of rows of this depth takes a quarter of a first cache of 64 KiB, half of one of 32.
  static constexpr std::size_t kMostDepth = 512;
  // Blocks that are packed at once.
  static constexpr std::size_t kMostStage = 8;
  // Floats that are packed: of a thread's own lines, of a group, of a panel. 768 KiB, 192 KiB (of
  // one block of depth) and 16 MiB.
  static constexpr std::size_t kMostOwn = std::size_t{192} * 1024;
  static constexpr std::size_t kMostGroup = std::size_t{48} * 1024;
  static constexpr std::size_t kMostPanel = std::size_t{4} * 1024 * 1024;
  static constexpr std::size_t kMostLines = 384;
  // Sums that wait: 8 MiB.
  static constexpr std::size_t kMostWaiting = std::size_t{2} * 1024 * 1024;

  bool rows_are_shared = false;  // rows of a, otherwise columns of b
  std::size_t own_lines = 0;     // that a thread takes at a time, at most
  std::size_t group = 0;         // lines
  std::size_t panel = 0;         // lines
  std::size_t depth = 0;         // of a block
  std::size_t stage = 0;         // depth of the blocks that are packed at once
  std::size_t waiting = 0;       // lines whose sums wait for the next stage; 0 where there is one

  // Floats of scratch memory; each part begins with a line of the cache.
  std::size_t shared_floats() const;
  std::size_t waiting_floats() const;
  std::size_t own_floats() const;  // of one thread
  std::size_t sum_floats() const;  // of one thread
};

Blocks plan_blocks(const Kernels& kernels, const ProductShape& shape);

}  // namespace lockstep::cpu::gemm
