#include "lockstep/comm/shared/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "lockstep/base/system/cache_lines.h"

namespace lockstep::shared {
namespace {

#if defined(__x86_64__)
// Measured on a Xeon: the lines that are written are what memcpy waits for; asked for ahead they
// make 1 to 16 MiB a tenth to a quarter faster, and less than this no faster.
constexpr std::size_t kWorthwhile = std::size_t{256} * 1024;
constexpr std::size_t kAhead = 2048;
constexpr bool kAsksToWrite = true;
#else
// Measured on a Neoverse N1: a sixth faster than memcpy from here on.
constexpr std::size_t kWorthwhile = 1024;
constexpr std::size_t kAhead = 256;
constexpr bool kAsksToWrite = false;
#endif

constexpr std::size_t kStride = 64;

// What is copied to one place before the next has its turn: stays in the first-level cache.
constexpr std::size_t kTurn = 1024;

// Copies `bytes` by steps; `following` more will be copied next, and may be asked for now.
void copy_ahead(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t following) {
  constexpr std::size_t kStep = 2 * kStride;
  typedef long Vector __attribute__((vector_size(16), aligned(1), may_alias));
  constexpr std::size_t kVectors = kStep / sizeof(Vector);
  for (; bytes >= kStep; to += kStep, from += kStep, bytes -= kStep) {
    if (bytes + following >= kAhead + kStep) {
      for (std::size_t line = kAhead; line < kAhead + kStep; line += kStride) {
        prefetch_to_read(from + line);
        if constexpr (kAsksToWrite) prefetch_to_write(to + line);
      }
    }
    Vector step[kVectors];
    for (std::size_t k = 0; k < kVectors; ++k) {
      step[k] = reinterpret_cast<const Vector*>(from)[k];
    }
    for (std::size_t k = 0; k < kVectors; ++k) reinterpret_cast<Vector*>(to)[k] = step[k];
  }
  std::memcpy(to, from, bytes);
}

// The same past the cache, where the CPU can; finish_streams() makes sure that it is there.
void stream_ahead(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t following) {
#if defined(__x86_64__)
  // Measured on a Xeon: 1.2 times as fast as copy_bytes() for 64 MiB in all, 1.7 times for 256 MiB.
  const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % kStride);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= kStride; to += kStride, from += kStride, bytes -= kStride) {
    if (bytes + following > kAhead) prefetch_to_read(from + kAhead);
    __m128i line[4];
    for (int k = 0; k < 4; ++k)
      line[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + k);
    for (int k = 0; k < 4; ++k) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + k, line[k]);
  }
  std::memcpy(to, from, bytes);
#else
  copy_ahead(to, from, bytes, following);
#endif
}

// Other ranks read it only after they are notified.
void finish_streams() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// By turns; copy(to, from, bytes, following) copies.
template <class Copy>
void by_turns(std::span<std::byte* const> to, const std::byte* from, std::size_t bytes,
              Copy&& copy) {
  for (std::size_t done = 0; done < bytes; done += kTurn) {
    const std::size_t here = std::min(kTurn, bytes - done);
    for (std::byte* output : to) {
      if (output != from) copy(output + done, from + done, here, bytes - done - here);
    }
  }
}

}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (bytes < kWorthwhile) {
    std::memcpy(to, from, bytes);
  } else {
    copy_ahead(to, from, bytes, 0);
  }
}

void stream_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  stream_ahead(to, from, bytes, 0);
  finish_streams();
}

void copy_to_all(std::span<std::byte* const> to, const std::byte* from, std::size_t bytes) {
  if (to.size() > 1 && bytes >= kWorthwhile) return by_turns(to, from, bytes, copy_ahead);
  for (std::byte* output : to) copy_bytes(output, from, bytes);
}

void stream_to_all(std::span<std::byte* const> to, const std::byte* from, std::size_t bytes) {
  if (to.size() == 1) return stream_bytes(to[0], from, bytes);
  by_turns(to, from, bytes, stream_ahead);
  finish_streams();
}

}  // namespace lockstep::shared
