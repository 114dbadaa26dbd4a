// The CUDA side of the tensor layer. A build without CUDA links no_cuda.cpp in its place, where
// every function throws Error(kUnsupported).
#pragma once

#include <memory>

#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/stream.h"

namespace lockstep {

DeviceMemory& cuda_memory(int index);
std::unique_ptr<Stream::Queue> make_cuda_queue(int index);

}  // namespace lockstep
