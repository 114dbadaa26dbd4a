// A captured step as a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "lockstep/ops/ops.h"

namespace lockstep::cuda {

class CudaOps;

// Takes ownership of the graph.
std::unique_ptr<CapturedStep> make_captured_step(CudaOps& ops, cudaGraph_t graph, bool may_fault);

}  // namespace lockstep::cuda
