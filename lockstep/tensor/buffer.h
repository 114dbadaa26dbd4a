// Bytes on a device, owned: they are freed with the Buffer, and moving hands them on.
//
// The start is aligned to 64 bytes, from 4 KiB on to that much (as direct I/O wants it), and that
// of large buffers on the CPU to 2 MiB with huge pages advised. What the bytes hold at first is
// undefined. memory_in_use() counts them (tensor/device_memory.h).
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
  // Throws Error(kSystem) where there is no room and Error(kUnsupported) where there is no such
  // device. No bytes need no room, and have no address. Where a budget is given they are taken from
  // it too, and it outlives the Buffer.
  explicit Buffer(std::size_t bytes, Device device = {}, MemoryBudget* budget = nullptr);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;  // frees what was held
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // A view of the bytes from `offset` on, valid as long as the Buffer (moves aside). Throws
  // Error(kInvalidArgument) where it would end behind them.
  Tensor tensor(DType dtype, const Shape& shape, std::size_t offset = 0) const;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
  MemoryClaim claim_;
};

}  // namespace lockstep
