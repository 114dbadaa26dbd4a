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

// Lives while ranks are threads of this process. A kernel of one of them may wait for a kernel that
// another has yet to launch, so the other must not be made to wait for the first. Memory of GPUs
// and pinned memory are freed when the last ThreadRanks has ended, since a free waits for all
// kernels of the process; copies do not use the copy engines where a kernel can do them.
class ThreadRanks {
 public:
  ThreadRanks();
  ~ThreadRanks();
  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;
};
// Whether one lives.
bool ranks_are_threads();

}  // namespace lockstep::cuda
