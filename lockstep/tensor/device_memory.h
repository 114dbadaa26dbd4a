// The memory of one device: allocation, copies and fills.
//
// Every allocation is counted to the byte, so that a plan can be compared with what a run uses.
// Thread-safe.
#pragma once

#include <cstddef>
#include <mutex>

#include "lockstep/tensor/device.h"

namespace lockstep {

class DeviceMemory {
 public:
  explicit DeviceMemory(Device device) : device_(device) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Allocates at least one byte at a multiple of `alignment` (a power of two up to 4096), not
  // initialized. Throws Error(kSystem) with the requested and the used bytes if memory is short.
  std::byte* allocate(std::size_t bytes, std::size_t alignment);
  // Frees what allocate(bytes, ...) returned.
  void free(std::byte* data, std::size_t bytes) noexcept;

  // One side is on this device, the other on it, on the CPU or on another device of its kind. They
  // may overlap. The copy is complete on return or, in a task of a Stream, before the next task
  // begins.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void fill_zero(std::byte* data, std::size_t bytes) = 0;

  std::size_t in_use() const;
  std::size_t peak() const;
  void reset_peak();

 protected:
  ~DeviceMemory() = default;  // lives as long as the process

 private:
  // nullptr if memory is short.
  virtual std::byte* take(std::size_t bytes, std::size_t alignment) = 0;
  virtual void give_back(std::byte* data, std::size_t bytes) noexcept = 0;

  const Device device_;
  mutable std::mutex mutex_;
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
};

// Throws Error(kUnsupported) for a device that this build or this machine does not have.
DeviceMemory& memory_of(Device device);

// Bytes that the Buffers of this process hold on a device, and the peak since the start or the last
// reset (which sets the peak to the current use).
std::size_t memory_in_use(Device device);
std::size_t peak_memory(Device device);
void reset_peak_memory(Device device);

}  // namespace lockstep
