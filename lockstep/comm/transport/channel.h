// A Channel is a stream of bytes to and from one peer. Calls never block. Throws Error(kPeerLost)
// when the peer is lost.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/system/deadline.h"

namespace lockstep::transport {

class Channel {
 public:
  virtual ~Channel() = default;

  // Writes the parts as one stream; returns how many bytes were accepted.
  virtual std::size_t write(std::span<const std::span<const std::byte>> parts) = 0;

  // Copies what has arrived into `into`; returns how many bytes. Uses peek() and consume() by
  // default.
  virtual std::size_t read(std::span<std::byte> into);

  // Bytes that have arrived, in place and contiguous; consume() frees the first of them. A run of
  // bytes that started at a multiple of 16 of the stream is never cut inside a 16-byte unit unless
  // the rest of it has not arrived.
  virtual std::span<const std::byte> peek() = 0;
  virtual void consume(std::size_t bytes) = 0;

  // When to try again even if the peer does nothing; valid after a write(), or a read() or peek(),
  // that moved nothing. kNoDeadline: only the peer can make progress.
  virtual Deadline write_due() const { return kNoDeadline; }
  virtual Deadline read_due() const { return kNoDeadline; }

  // The descriptor to poll; -1 if the peer rings this rank's doorbell instead.
  virtual int fd() const { return -1; }
};

}  // namespace lockstep::transport
