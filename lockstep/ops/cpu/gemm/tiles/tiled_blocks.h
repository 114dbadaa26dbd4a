// How a tiled product (tiled.h) is cut.
#pragma once

#include <cstddef>

#include "lockstep/ops/cpu/gemm/product.h"

namespace lockstep::cpu::gemm {

// Lines and depths are multiples of 32.
struct TiledBlocks {
  static constexpr std::size_t kWholeDepth = 4096;
  static constexpr std::size_t kMostDepth = 4096;
  // Elements that are packed: of a thread's own lines, of a group, of a panel. 1.1 MiB, 256 KiB and
  // 8 MiB.
  static constexpr std::size_t kMostOwn = 768 * 768;
  static constexpr std::size_t kMostGroup = std::size_t{128} * 1024;
  static constexpr std::size_t kMostPanel = std::size_t{4} * 1024 * 1024;
  static constexpr std::size_t kMostLines = 512;
  // Sums that wait: 8 MiB.
  static constexpr std::size_t kMostWaiting = std::size_t{2} * 1024 * 1024;

  bool rows_are_shared = false;  // rows of a, otherwise columns of b
  std::size_t own_lines = 0;     // that a thread takes at a time, at most
  std::size_t group = 0;         // lines
  std::size_t panel = 0;         // lines
  std::size_t depth = 0;         // of a block
  std::size_t waiting = 0;       // lines whose squares wait, each with those of a panel

  // Of scratch memory, at any alignment.
  std::size_t bytes(int threads) const;
};

TiledBlocks plan_tiled(const ProductShape& shape);

}  // namespace lockstep::cpu::gemm
