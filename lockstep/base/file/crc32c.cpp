#include "lockstep/base/file/crc32c.h"

#include <array>

namespace lockstep {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // bits reversed

// What each byte makes of a remainder of zero.
constexpr std::array<std::uint32_t, 256> remainders() {
  std::array<std::uint32_t, 256> table = {};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kPolynomial : 0);
    }
    table[byte] = remainder;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kRemainders = remainders();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t remainder = 0xFFFFFFFF;
  for (const char byte : bytes) {
    remainder =
        (remainder >> 8) ^ kRemainders[(remainder ^ static_cast<std::uint8_t>(byte)) & 0xFF];
  }
  return ~remainder;
}

}  // namespace lockstep
