// Where memory can lie besides the device that computes: each tier is larger and farther than the
// one before.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class Tier : std::uint8_t {
  kDevice,  // computed with
  kHost,    // main memory
  kFile,    // a file on a disk
};
inline constexpr std::string_view kTierNames[] = {"device", "host", "file"};
constexpr std::string_view name(Tier tier) { return kTierNames[static_cast<std::size_t>(tier)]; }

}  // namespace lockstep
