#include "lockstep/tensor/device.h"

#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep {

std::string name(Device device) {
  switch (device.kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kCuda:
      return fmt::format("cuda:{}", device.index);
  }
  return "?";
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return {DeviceKind::kCpu, 0};
  if (text == "cuda") return {DeviceKind::kCuda, 0};
  constexpr std::string_view kCuda = "cuda:";
  if (text.starts_with(kCuda)) {
    const char* const end = text.data() + text.size();
    int index = -1;
    const auto [stop, error] = std::from_chars(text.data() + kCuda.size(), end, index);
    if (error == std::errc() && stop == end && index >= 0) return {DeviceKind::kCuda, index};
  }
  fail(ErrorCode::kInvalidArgument, "'{}' is not a device; write cpu, or cuda:0 and so on", text);
}

}  // namespace lockstep
