// The memory of a GPU as DeviceMemory, and pinned host memory.
#pragma once

#include <cstddef>

#include "lockstep/tensor/device_memory.h"

namespace lockstep::cuda {

// The GPU must be usable (problem_of() is empty).
DeviceMemory& memory_of_gpu(int device);

// Memory that cudaMalloc() made; nullptr is none.
void free_on_gpu(void* data) noexcept;
std::byte* allocate_pinned(std::size_t bytes);
void free_pinned(std::byte* data) noexcept;
void pin(std::byte* data, std::size_t bytes);
void unpin(std::byte* data) noexcept;

// While one lives, memory of GPUs and pinned memory are freed later, when the last has ended. A
// free waits for all kernels of the process. Where ranks are threads of one process, a kernel of
// one may wait for a kernel that another has yet to launch, which in turn waits for the free.
class LateFrees {
 public:
  LateFrees();
  ~LateFrees();
  LateFrees(const LateFrees&) = delete;
  LateFrees& operator=(const LateFrees&) = delete;
};
// Whether one lives.
bool frees_are_late();

}  // namespace lockstep::cuda
