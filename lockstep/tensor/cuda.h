// NVIDIA GPUs. This library does not link CUDA: everything that touches a GPU is in a module,
// liblockstep_cuda.so (base/module.h), which is loaded on first use. So one build runs on machines
// with and without GPUs, and errors say why a GPU cannot be used.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/stream.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// GPUs of an earlier compute capability have no bf16 and are not used.
inline constexpr int kLeastCapability = 80;  // 8.0, Ampere
// From here on a GPU multiplies matrices of 8-bit floating-point numbers (Ada, Hopper).
inline constexpr int kLeastFloat8Capability = 89;

struct GpuInfo {
  int index = 0;  // of "cuda:0"
  std::string name;
  int capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  std::size_t total_bytes = 0;
  std::string near_cpus;  // those of its NUMA node, "0-47,96-143"; empty where it is not known
  std::string driver;     // the CUDA version that the driver supports, "13.0"
  std::string runtime;    // that of the module
  std::string cublas_lt;
};

// Why no GPU can be used, as a sentence without a full stop; empty if one can be used.
std::string why_no_cuda();
inline bool cuda_is_available() { return why_no_cuda().empty(); }

// All GPUs that CUDA shows to this process, also those that are too old; empty without the module
// or a driver. Allocates no GPU memory.
std::vector<GpuInfo> cuda_devices();

// The functions below throw Error(kUnsupported) for a GPU that cannot be used, with the reason.

// The free bytes. Creates a context on the GPU, which takes some memory there.
std::size_t free_cuda_memory(int index);

// Another process that computes on a GPU.
struct GpuUser {
  unsigned pid = 0;
  std::string name;       // of its program; empty where this process may not see it
  std::size_t bytes = 0;  // of the GPU's memory; 0 where the driver does not say
};
// Most bytes first. Empty where the driver's management library is not there.
std::vector<GpuUser> cuda_memory_users(int index);

DeviceMemory& cuda_memory(int index);
std::unique_ptr<Stream::Queue> make_cuda_queue(int index);

// Page-locked host memory: copies between it and a GPU run at full speed and asynchronously. Not
// counted by memory_in_use().
class PinnedBuffer {
 public:
  PinnedBuffer() = default;  // no bytes
  explicit PinnedBuffer(std::size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // A view of the bytes from `offset` on. Throws Error(kInvalidArgument) if it would end past them.
  Tensor tensor(DType dtype, const Shape& shape, std::size_t offset = 0) const;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Page-locks host memory that is there already, which must outlive it.
class PinnedRange {
 public:
  PinnedRange() = default;  // of no bytes
  // Throws Error(kSystem) where so much memory cannot be locked.
  PinnedRange(std::byte* data, std::size_t bytes);
  ~PinnedRange();
  PinnedRange(PinnedRange&& other) noexcept;
  PinnedRange& operator=(PinnedRange&& other) noexcept;
  PinnedRange(const PinnedRange&) = delete;
  PinnedRange& operator=(const PinnedRange&) = delete;

 private:
  std::byte* data_ = nullptr;
};

}  // namespace lockstep
