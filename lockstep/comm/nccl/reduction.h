// Kernels for reductions that NCCL does not do as ReduceOp promises, or not in the order of a tree.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "lockstep/comm/reduce_op.h"

namespace lockstep::nccl {

inline constexpr int kMostTreeLevels = 10;
inline constexpr int kMostTreeRanks = 1 << kMostTreeLevels;

// Blocks of `ranks` ranks, `stride` elements apart.
struct Blocks {
  const std::byte* first;
  std::size_t stride;
  int ranks;
};

// out[i] = element i of all blocks combined, in the order of a balanced tree over ranks. `out` may
// be one of the blocks.
void launch_tree(const Blocks& blocks, std::byte* out, std::size_t count, DType dtype,
                 ReduceOp::Kind op, cudaStream_t stream);

// data[i] becomes data[i] / ranks, as mean has it.
void launch_mean(std::byte* data, std::size_t count, DType dtype, int ranks, cudaStream_t stream);

// Loads all kernels, which could wait for one that runs.
void load_reductions();

}  // namespace lockstep::nccl
