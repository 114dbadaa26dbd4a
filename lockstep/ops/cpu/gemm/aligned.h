// Scratch memory may begin anywhere: who needs it aligned asks for kAlignment - 1 bytes more.
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
