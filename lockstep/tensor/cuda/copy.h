// Copies within the memory of one GPU, by a kernel.
//
// cudaMemcpyAsync was seen to wait for a running kernel of another stream. Where ranks share the
// GPU, that kernel may be a collective that waits for this rank.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace lockstep::cuda {

// The ranges do not overlap.
void copy_on_gpu(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream);

// Loads the kernels, which could not happen while a kernel of another rank waits for this one.
void load_copies();

}  // namespace lockstep::cuda
