// The memory of a GPU as DeviceMemory, and memory of the CPU that GPUs reach by themselves.
#pragma once

#include <cstddef>

#include "lockstep/tensor/device_memory.h"

namespace lockstep::cuda {

// Of a GPU that can be used.
DeviceMemory& memory_of_gpu(int device);

std::byte* allocate_pinned(std::size_t bytes);
void free_pinned(std::byte* data) noexcept;

}  // namespace lockstep::cuda
