// Asking for memory ahead of a reduction in place. Part of kernels.inl.
//
// The lines of other ranks' memory that a reduction in place reads and then writes have been
// changed by another core. Asked for to be written, before they are read, they come over in one
// exchange instead of two.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/system/cache_lines.h"
#include "lockstep/comm/reduce/kernels.h"

namespace lockstep::reduce::LOCKSTEP_ISA {
namespace {

// How: not at all; by a prefetch; or by atomically adding zero to a word of each line of another
// rank (the first output is this rank's own). The shared cache executes the addition and takes the
// line from all cores. It then gives the line to the next reader in a writable state. An atomic
// addition of zero changes nothing, whatever other ranks do to the line meanwhile.
enum class Asking { kNone, kPrefetch, kAdd };

constexpr std::size_t kLine = 64;

#if defined(__ARM_FEATURE_ATOMICS)
constexpr bool kCanAdd = true;
#else
constexpr bool kCanAdd = false;
#endif

// Which of them a call of `bytes` wants; whether it widens what it reads. Measured on a Neoverse
// V1, which heeds prefetches in short calls only, with 2 ranks: by addition f32 takes half the time
// for 16 to 128 KiB, 0.6 for 1 MiB and 0.9 for 8 MiB. Where arithmetic takes as long as memory
// there is less to gain, and nothing in long calls.
Asking asking_for(const KernelCall& call, std::size_t bytes, bool widens) {
  if (!call.updates) return Asking::kNone;
  if (!kCanAdd) return Asking::kPrefetch;
  if (widens && bytes >= 2 * 1024 * 1024) return Asking::kNone;
  const bool pays = call.output_count > 1 && bytes >= (widens ? 16384 : 4096);
  return pays ? Asking::kAdd : Asking::kPrefetch;
}

// How far ahead. Prefetches measured on a Xeon: in long calls 2 KiB is up to a third faster than
// 512 bytes, in short ones it is too far. Additions on a Neoverse V1.
std::size_t distance_asked(Asking asking, std::size_t bytes) {
  if (asking == Asking::kAdd) return bytes >= 1024 * 1024 ? 16384 : 4096;
#if defined(__x86_64__)
  if (bytes >= 512 * 1024) return 2048;
#endif
  return 512;
}

// Asks for the lines of a tile `offset` bytes into every output of `bytes`.
template <std::size_t kTile, Asking kAsking>
inline __attribute__((always_inline)) void ask_for_tile(const KernelCall& call, std::size_t offset,
                                                        [[maybe_unused]] std::size_t bytes) {
  if constexpr (kAsking == Asking::kPrefetch) {
    for (std::size_t m = 0; m < call.output_count; ++m) {
      for (std::size_t line = 0; line < kTile; line += kLine) {
        prefetch_to_write(call.outputs[m] + offset + line);
      }
    }
  }
#if defined(__ARM_FEATURE_ATOMICS)
  // Unlike a prefetch it must stay in the buffer.
  if (kAsking == Asking::kAdd && offset + kTile <= bytes) {
    for (std::size_t m = 1; m < call.output_count; ++m) {
      for (std::size_t line = 0; line < kTile; line += kLine) {
        const auto address = reinterpret_cast<std::uintptr_t>(call.outputs[m] + offset + line);
        asm volatile("stadd xzr, [%0]" ::"r"((address + 7) & ~std::uintptr_t{7}) : "memory");
      }
    }
  }
#endif
}

}  // namespace
}  // namespace lockstep::reduce::LOCKSTEP_ISA
