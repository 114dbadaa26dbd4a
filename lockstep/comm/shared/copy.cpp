#include "lockstep/comm/shared/copy.h"

#include <cstring>

#include "lockstep/base/prefetch.h"

namespace lockstep::shared {

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
#if defined(__aarch64__)
  // Measured on Neoverse N1: a sixth faster than memcpy from 1 KiB on. x86's prefetchers need no
  // help.
  constexpr std::size_t kStride = 64;
  constexpr std::size_t kStep = 2 * kStride;
  constexpr std::size_t kAhead = 256;
  constexpr std::size_t kWorthwhile = 1024;
  if (bytes >= kWorthwhile) {
    typedef long Vector __attribute__((vector_size(16), aligned(1), may_alias));
    constexpr std::size_t kVectors = kStep / sizeof(Vector);
    for (; bytes >= kStep; to += kStep, from += kStep, bytes -= kStep) {
      if (bytes > kAhead) {
        prefetch_to_read(from + kAhead);
        prefetch_to_read(from + kAhead + kStride);
      }
      Vector step[kVectors];
      for (std::size_t k = 0; k < kVectors; ++k) {
        step[k] = reinterpret_cast<const Vector*>(from)[k];
      }
      for (std::size_t k = 0; k < kVectors; ++k) reinterpret_cast<Vector*>(to)[k] = step[k];
    }
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace lockstep::shared
