// A Channel is a stream of bytes to and from one peer. Nothing blocks: calls do what can be done
// now. A peer that is gone shows as Error(kPeerLost).
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/system/deadline.h"

namespace lockstep::transport {

class Channel {
 public:
  virtual ~Channel() = default;

  // Takes bytes from the front of the parts, as one stream; returns how many were taken.
  virtual std::size_t write(std::span<const std::span<const std::byte>> parts) = 0;

  // Copies what has arrived into `into`; returns how many bytes. By peek() and consume(), unless
  // there is a shorter way.
  virtual std::size_t read(std::span<std::byte> into);

  // Bytes that have arrived, in place and contiguous; consume() frees the first of them. A run of
  // bytes that started at a multiple of 16 of the stream is never cut inside a 16-byte unit unless
  // the rest of it has not arrived.
  virtual std::span<const std::byte> peek() = 0;
  virtual void consume(std::size_t bytes) = 0;

  // When to try again although the peer does nothing; said after a write(), or after a read() or
  // peek(), that moved nothing. kNoDeadline: only the peer can help.
  virtual Deadline write_due() const { return kNoDeadline; }
  virtual Deadline read_due() const { return kNoDeadline; }

  // What poll() can wait on; -1 where the peer rings this rank's doorbell instead.
  virtual int fd() const { return -1; }
};

}  // namespace lockstep::transport
