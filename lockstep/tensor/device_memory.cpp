#include "lockstep/tensor/device_memory.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text/units.h"
#include "lockstep/tensor/cpu_memory.h"
#include "lockstep/tensor/cuda.h"

namespace lockstep {
namespace {

std::string both_ways(std::size_t bytes) {
  const auto rounded = format_bytes(static_cast<double>(bytes));
  return bytes < 1024 ? rounded : fmt::format("{} ({} bytes)", rounded, bytes);
}

}  // namespace

std::byte* DeviceMemory::allocate(std::size_t bytes, std::size_t alignment) {
  std::byte* const data = take(bytes, alignment);
  const std::lock_guard lock(mutex_);
  if (data == nullptr) {
    fail(ErrorCode::kSystem,
         "not enough memory for {} on {}, where this process already uses {}; choose settings that "
         "need less memory, or free some on this machine",
         both_ways(bytes), name(device_), both_ways(in_use_));
  }
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
  return data;
}

void DeviceMemory::free(std::byte* data, std::size_t bytes) noexcept {
  give_back(data, bytes);
  const std::lock_guard lock(mutex_);
  in_use_ -= bytes;
}

std::size_t DeviceMemory::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

std::size_t DeviceMemory::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void DeviceMemory::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = in_use_;
}

DeviceMemory& memory_of(Device device) {
  if (device.kind == DeviceKind::kCuda) return cuda_memory(device.index);
  if (device.index != 0) {
    fail(ErrorCode::kUnsupported, "the only CPU device is cpu:0; cpu:{} does not exist",
         device.index);
  }
  return cpu_memory();
}

std::size_t memory_in_use(Device device) { return memory_of(device).in_use(); }
std::size_t peak_memory(Device device) { return memory_of(device).peak(); }
void reset_peak_memory(Device device) { memory_of(device).reset_peak(); }

}  // namespace lockstep
