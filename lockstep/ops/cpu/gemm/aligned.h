// Scratch memory may have any alignment: code that needs alignment requests kAlignment - 1 more
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::cpu::gemm {

inline constexpr std::size_t kAlignment = 64;

inline std::byte* aligned(std::byte* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return memory + (kAlignment - address % kAlignment) % kAlignment;
}

}  // namespace lockstep::cpu::gemm
