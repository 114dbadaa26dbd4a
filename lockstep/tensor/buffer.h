// Owned bytes on a device. The destructor frees them.
//
// Buffers are aligned to 64 bytes, those of 4 KiB and more to 4 KiB (for direct I/O), and large
// ones on the CPU to 2 MiB, with huge pages advised. The bytes are not initialized. memory_in_use()
// counts them (tensor/device_memory.h).
#pragma once

#include <cstddef>

#include "lockstep/tensor/device.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/memory_budget.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kPage = 4096;

  Buffer() = default;  // no bytes
  // Throws Error(kSystem) if memory is short and Error(kUnsupported) if the device does not exist.
  // Zero bytes are not allocated and have no address. The bytes also count against `budget`, if
  // given, which must outlive the Buffer.
  explicit Buffer(std::size_t bytes, Device device = {}, MemoryBudget* budget = nullptr);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;  // frees what was held
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // A view of the bytes from `offset` on, valid as long as the Buffer, also after a move. Throws
  // Error(kInvalidArgument) if it would end past them.
  Tensor tensor(DType dtype, const Shape& shape, std::size_t offset = 0) const;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
  MemoryClaim claim_;
};

}  // namespace lockstep
