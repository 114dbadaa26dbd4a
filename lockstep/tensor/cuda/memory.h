// The memory of a GPU as DeviceMemory, and pinned host memory.
#pragma once

#include <cstddef>

#include "lockstep/tensor/device_memory.h"

namespace lockstep::cuda {

// The GPU must be usable (problem_of() is empty).
DeviceMemory& memory_of_gpu(int device);

std::byte* allocate_pinned(std::size_t bytes);
void free_pinned(std::byte* data) noexcept;
void pin(std::byte* data, std::size_t bytes);
void unpin(std::byte* data) noexcept;

}  // namespace lockstep::cuda
