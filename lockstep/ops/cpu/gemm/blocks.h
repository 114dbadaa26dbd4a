// How a product is cut (packed.h).
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/ops/cpu/gemm/kernels.h"
#include "lockstep/ops/cpu/gemm/product.h"
#include "lockstep/ops/cpu/team.h"

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

struct Blocks {
  // A strip of rows of this depth takes a quarter of a first cache of 64 KiB, half of one of 32.
  static constexpr std::size_t kMostDepth = 512;
  // Packed columns of that depth take 192 KiB of the second cache.
  static constexpr std::size_t kMostColumns = 96;
  // A packed element is used this often, which makes packing cheap.
  static constexpr std::size_t kMostArea = 768;

  std::size_t row_parts = 1;  // times column_parts: the number of threads
  std::size_t column_parts = 1;
  std::size_t area_rows = 0;
  std::size_t area_columns = 0;
  std::size_t depth = 0;    // of a block
  std::size_t columns = 0;  // packed at a time

  // Floats of one thread's scratch memory.
  std::size_t packed_rows = 0;
  std::size_t packed_columns = 0;
  std::size_t sums = 0;  // none where there is one block
  std::size_t floats() const { return packed_rows + packed_columns + sums; }
};

Blocks plan_blocks(const Kernels& kernels, const ProductShape& shape, int threads);

}  // namespace lockstep::cpu::gemm
