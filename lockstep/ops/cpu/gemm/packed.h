// Matrix products by packing, on any CPU and for any shape.
//
// The smaller of the two matrices is shared: all threads pack it together, once, into strips. Of
// the other each thread takes some lines after the other, as many as its second cache holds packed,
// and multiplies them by all shared strips, a group at a time, which comes into the second cache
// too:
//
//                   columns of b, shared
//                 +-------+-------+-------+    every element is packed once; a shared one that
//    rows of a,   | group |       |       |    comes into the second cache is multiplied by each
//    taken    --> |  ...  |  ...  |  ...  |    of the lines there
//    by a thread  +-------+-------+-------+
//
// A group meets the lines in blocks of depth, so that a strip of rows stays in the first cache
// while it is multiplied by strips of columns; each pair of strips makes a tile of sums, which wait
// until the last block finishes them. Where there is one block, floats are finished in registers.
//
// Idle threads take lines dynamically, fewer towards the end (down to a strip if the shared ones
// all stay in the second cache), so that no thread waits for a core that other programs use. Blocks
// follow from the depth alone and sums run in order of depth: results do not depend on which thread
// takes a line, nor on the number of threads, nor on the instruction set where that can fuse a
// product with a sum.
//
// Depth beyond Blocks::kMostStage blocks is gone through in stages, and the tiles of all lines wait
// in memory for the last one. A shared side that is too large is gone through in panels.
#pragma once

#include <cstddef>

#include "lockstep/ops/cpu/gemm/blocks.h"
#include "lockstep/ops/cpu/gemm/product.h"
#include "lockstep/ops/cpu/team/cpu.h"

namespace lockstep::cpu::gemm {

// Bytes that run_packed needs, at any alignment.
std::size_t packed_scratch(const Cpu& cpu, const ProductShape& shape);

void run_packed(const Cpu& cpu, const Product& product, std::byte* scratch);

// The same, cut in another way.
std::size_t packed_scratch(const Blocks& blocks, int threads);
void run_packed(const Kernels& kernels, const Cpu& cpu, const Blocks& blocks,
                const Product& product, std::byte* scratch);

}  // namespace lockstep::cpu::gemm
