// Memory of a GPU with what a test puts there, and takes from there.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "lockstep/parallel/compression/codec_device.h"
#include "lockstep/parallel/compression/convert.h"
#include "lockstep/tensor/buffer.h"
#include "tests/tensor/cuda/gpu.h"

namespace lockstep::parallel::testing {

class DeviceBytes {
 public:
  // `lead`: where the bytes begin, which payloads do at any address.
  explicit DeviceBytes(std::size_t bytes, std::size_t lead = 0)
      : buffer_(bytes + lead + 1, lockstep::testing::kGpu), bytes_(bytes), lead_(lead) {}
  explicit DeviceBytes(std::span<const std::byte> bytes, std::size_t lead = 0)
      : DeviceBytes(bytes.size(), lead) {
    memory_of(lockstep::testing::kGpu).copy(data(), bytes.data(), bytes.size());
  }

  std::byte* data() const { return buffer_.data() + lead_; }
  std::span<std::byte> span() const { return {data(), bytes_}; }
  std::vector<std::byte> fetched() const {
    std::vector<std::byte> bytes(bytes_);
    memory_of(lockstep::testing::kGpu).copy(bytes.data(), data(), bytes_);
    return bytes;
  }

 private:
  Buffer buffer_;
  std::size_t bytes_;
  std::size_t lead_;
};

class DeviceFloats {
 public:
  explicit DeviceFloats(std::span<const float> values) : bytes_(std::as_bytes(values)) {}

  std::span<float> span() const {
    const std::span<std::byte> bytes = bytes_.span();
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
  }
  std::vector<float> fetched() const {
    const std::vector<std::byte> bytes = bytes_.fetched();
    std::vector<float> values(bytes.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  DeviceBytes bytes_;
};

// The same bits; NaN are alike whatever their bits.
inline bool same_floats(std::span<const float> one, std::span<const float> other) {
  if (one.size() != other.size()) return false;
  for (std::size_t i = 0; i < one.size(); ++i) {
    const bool nan = std::isnan(one[i]) && std::isnan(other[i]);
    if (!nan && std::memcmp(&one[i], &other[i], sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace lockstep::parallel::testing
