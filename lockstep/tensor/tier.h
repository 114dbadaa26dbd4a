// Memory tiers: each is larger and slower than the previous one.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class Tier : std::uint8_t {
  kDevice,  // the memory of the device that computes
  kHost,    // main memory
  kFile,    // a file on a disk
};
inline constexpr std::string_view kTierNames[] = {"device", "host", "file"};
constexpr std::string_view name(Tier tier) { return kTierNames[static_cast<std::size_t>(tier)]; }

}  // namespace lockstep
