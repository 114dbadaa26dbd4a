// The memory of one device: the seam between what holds tensors and what a device does with bytes.
//
// Every allocation is counted here, to the byte asked for, so that what a plan predicts can be
// compared with what a run uses. All functions may be called by any thread.
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

  // One byte or more at a multiple of `alignment` (a power of two up to 4096), not initialised.
  // Throws Error(kSystem) where there is no room, saying what was asked for and what is in use.
  std::byte* allocate(std::size_t bytes, std::size_t alignment);
  // Takes back what allocate(bytes, ...) gave.
  void free(std::byte* data, std::size_t bytes) noexcept;

  // One end lies on this device, the other on it, the CPU, or another of its kind; they may
  // overlap. The bytes have arrived on return, or, called in a task of a Stream, before its next
  // task begins.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void fill_zero(std::byte* data, std::size_t bytes) = 0;

  std::size_t in_use() const;
  std::size_t peak() const;
  void reset_peak();

 protected:
  ~DeviceMemory() = default;  // lives as long as the process

 private:
  // nullptr where there is no room.
  virtual std::byte* take(std::size_t bytes, std::size_t alignment) = 0;
  virtual void give_back(std::byte* data, std::size_t bytes) noexcept = 0;

  const Device device_;
  mutable std::mutex mutex_;
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
};

// Throws Error(kUnsupported) for a device that this build or this machine does not have.
DeviceMemory& memory_of(Device device);

// Bytes held by the Buffers of this process on a device, and the most there were at once since the
// start or the last reset (which makes the present use the peak).
std::size_t memory_in_use(Device device);
std::size_t peak_memory(Device device);
void reset_peak_memory(Device device);

}  // namespace lockstep
