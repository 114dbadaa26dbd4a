// Matrix products by packing, on any CPU and for any shape.
//
// The output is cut into as many parts as there are threads, rows by columns, and a thread's part
// into areas. For an area, depth is gone through in blocks: the area's rows of a are packed into
// strips, and its columns of b too, as many at a time as stay in the second cache; each pair of
// strips makes a tile of sums, which wait in the area until the last block finishes them.
//
//                 columns of b        depth blocks follow from the depth alone and sums run in
//               +--------+--------+   order of depth: results do not depend on the number of
//       rows    | thread | thread |   threads, nor on the instruction set where that can fuse a
//       of a    |   0    |   1    |   product with a sum.
//               +--------+--------+
#pragma once

#include <cstddef>

#include "lockstep/ops/cpu/cpu.h"
#include "lockstep/ops/cpu/gemm/product.h"

namespace lockstep::cpu::gemm {

// Bytes that run_packed needs, at any alignment.
std::size_t packed_scratch(const Cpu& cpu, const ProductShape& shape);

void run_packed(const Cpu& cpu, const Product& product, std::byte* scratch);

}  // namespace lockstep::cpu::gemm
