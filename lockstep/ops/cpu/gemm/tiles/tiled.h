// Matrix products of bf16 by tiles (tiles.h), on CPUs with AMX.
//
// The smaller of the two matrices is shared: all threads pack it together, once, into strips that
// stay in the last cache. Of the other each thread takes some lines after the other, as many as its
// second cache holds packed, and multiplies them by all shared strips, a group at a time:
//
//                   columns of b, shared
//                 +-------+-------+-------+    a byte of the shared strips that comes into the
//    rows of a,   | group |       |       |    second cache is multiplied by each of the lines
//    taken    --> |  ...  |  ...  |  ...  |    there: hundreds of times, because two cores fetch
//    by a thread  +-------+-------+-------+    25 GB/s and multiply 4700 GFLOP/s
//
// The floor for outputs of 4096 x 768, 3072 deep, on two such cores: 19.3 GFLOP take 4.1 ms in
// tiles, 36 MB of matrices 1.4 ms from memory. 192 rows are taken at a time, so that the 4.7 MB of
// packed columns come out of the last cache 22 times, a byte for every 187 operations.
//
// Idle threads take lines dynamically, fewer towards the end: a core that another program uses
// multiplies at a third of its speed, and no thread should wait for it. Sums run in order of depth,
// 32 at a time, and stay unrounded until the last, so the bits do not depend on which thread takes
// a line, or on how a product is cut.
//
// Depth beyond TiledBlocks::kWholeDepth is gone through in blocks, and the squares of all lines
// wait in memory for the last one. A shared side that is too large is gone through in panels.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/ops/cpu/gemm/implementation.h"
#include "lockstep/ops/cpu/gemm/product.h"
#include "lockstep/ops/cpu/gemm/tiles/tiled_blocks.h"
#include "lockstep/ops/cpu/gemm/tiles/tiles.h"
#include "lockstep/ops/cpu/team/cpu.h"

namespace lockstep::cpu::gemm {

// `product` is one of bf16, to bf16 or f32; `scratch` has blocks.bytes(cpu.team.size()).
void run_tiled(const TileKernels& kernels, const Cpu& cpu, const TiledBlocks& blocks,
               const Product& product, std::byte* scratch);

// Null where the instruction set has no tiles.
std::unique_ptr<Implementation> make_tiled(const Cpu& cpu);

}  // namespace lockstep::cpu::gemm
