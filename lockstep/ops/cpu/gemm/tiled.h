// Matrix products of bf16 by tiles (tiles.h), on CPUs with AMX.
//
// Two cores multiply some 5400 GFLOP/s in their tiles, and 25 GB/s come from memory: an element
// that is fetched must be multiplied hundreds of times. The output is cut into parts and areas as
// in the packed product (packed.h), and elements stay bf16 in memory of the second cache:
//
//   depth up to kWholeDepth    the rows of an area are packed once for all of depth, as many as
//   have
//                              room; columns, a few strips at a time, meet them all. A square is
//                              finished as soon as it is multiplied.
//   more                       depth is gone through in blocks, and the squares of an area wait in
//                              the cache until the last block. An area of r rows and c columns
//                              multiplies each byte it fetches r c / (r + c) times.
//
// For 4096 x 768 outputs, 3072 deep, on two threads: 19.3 GFLOP take 3.6 ms in tiles. With areas of
// 512 x 384, rows are fetched twice and columns 8 times, 88 MB: 3.5 ms.
//
// Sums run in order of depth, 32 at a time, and wait unrounded: results depend neither on the
// number of threads nor on how a product is cut.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/ops/cpu/cpu.h"
#include "lockstep/ops/cpu/gemm/implementation.h"
#include "lockstep/ops/cpu/gemm/product.h"
#include "lockstep/ops/cpu/gemm/tiles.h"

namespace lockstep::cpu::gemm {

// How a product is cut; all but the parts are multiples of 32.
struct TiledBlocks {
  static constexpr std::size_t kWholeDepth = 1024;
  static constexpr std::size_t kMostDepth = 512;
  // Rows times depth that stay packed: 1.1 MiB.
  static constexpr std::size_t kMostPacked = 768 * 768;
  static constexpr std::size_t kMostArea = 512;
  // A row of so many columns is a few lines of the cache, which come together.
  static constexpr std::size_t kMostColumns = 128;

  std::size_t row_parts = 1;  // times column_parts: the number of threads
  std::size_t column_parts = 1;
  std::size_t area_rows = 0;
  std::size_t area_columns = 0;
  std::size_t depth = 0;    // of a block
  std::size_t columns = 0;  // packed at a time
  bool waits = false;       // squares, for further blocks of depth

  // One thread's scratch memory: elements, elements, floats.
  std::size_t packed_rows() const { return area_rows * depth; }
  std::size_t packed_columns() const { return columns * depth; }
  std::size_t squares() const { return waits ? area_rows * area_columns : 0; }
  std::size_t bytes() const {
    return (packed_rows() + packed_columns()) * sizeof(BFloat16) + squares() * sizeof(float);
  }
};

TiledBlocks plan_tiled(const ProductShape& shape, int threads);

// Bytes that run_tiled needs, at any alignment.
std::size_t tiled_scratch(const Cpu& cpu, const TiledBlocks& blocks);

// `product` is one of bf16, to bf16 or f32.
void run_tiled(const TileKernels& kernels, const Cpu& cpu, const TiledBlocks& blocks,
               const Product& product, std::byte* scratch);

// Null where the instruction set has no tiles.
std::unique_ptr<Implementation> make_tiled(const Cpu& cpu);

}  // namespace lockstep::cpu::gemm
