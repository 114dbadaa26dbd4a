#include "lockstep/comm/transport/ring_channel.h"

#include <algorithm>
#include <cstring>

#include "lockstep/comm/shared/waiter.h"

namespace lockstep::transport {

using shared::kRingBytes;

std::size_t RingChannel::free_bytes() const {
  return kRingBytes -
         (out_.written.load(std::memory_order_relaxed) - out_.read.load(std::memory_order_acquire));
}

std::size_t RingChannel::write(std::span<const std::span<const std::byte>> parts) {
  const std::uint64_t start = out_.written.load(std::memory_order_relaxed);
  std::uint64_t at = start;
  std::size_t left = free_bytes();
  for (std::span<const std::byte> part : parts) {
    while (!part.empty() && left > 0) {
      const std::size_t offset = at % kRingBytes;
      const std::size_t bytes = std::min({part.size(), left, kRingBytes - offset});
      std::memcpy(out_.bytes + offset, part.data(), bytes);
      part = part.subspan(bytes);
      at += bytes;
      left -= bytes;
    }
  }
  if (at != start) {
    out_.written.store(at, std::memory_order_seq_cst);
    shared::ring(doorbell_);
  }
  return at - start;
}

std::span<const std::byte> RingChannel::peek() {
  const std::uint64_t read = in_.read.load(std::memory_order_relaxed);
  const std::uint64_t written = in_.written.load(std::memory_order_acquire);
  const std::size_t offset = read % kRingBytes;
  return {in_.bytes + offset, std::min<std::size_t>(written - read, kRingBytes - offset)};
}

void RingChannel::consume(std::size_t bytes) {
  in_.read.store(in_.read.load(std::memory_order_relaxed) + bytes, std::memory_order_seq_cst);
  shared::ring(doorbell_);
}

}  // namespace lockstep::transport
