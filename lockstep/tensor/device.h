// A device: where memory is and where work runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

// There is one CPU, of index 0; CUDA devices count from 0.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

std::string name(Device device);  // "cpu", "cuda:0"

// Accepts what name() returns, and "cuda" for the first CUDA device. Throws Error(kInvalidArgument)
// for anything else. Does not check whether the device exists.
Device parse_device(std::string_view text);

}  // namespace lockstep
