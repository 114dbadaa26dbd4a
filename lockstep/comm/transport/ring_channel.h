// A Channel through two rings in shared memory.
#pragma once

#include "lockstep/comm/shared/segment.h"
#include "lockstep/comm/transport/channel.h"

namespace lockstep::transport {

class RingChannel : public Channel {
 public:
  // `doorbell` is the peer's; it is rung after writing and after reading.
  RingChannel(shared::Ring& to_peer, shared::Ring& from_peer, shared::Doorbell& doorbell)
      : out_(to_peer), in_(from_peer), doorbell_(doorbell) {}

  std::size_t write(std::span<const std::span<const std::byte>> parts) override;
  std::span<const std::byte> peek() override;
  void consume(std::size_t bytes) override;

  // Bytes that write() would accept now.
  std::size_t free_bytes() const;

 private:
  shared::Ring& out_;
  shared::Ring& in_;
  shared::Doorbell& doorbell_;
};

}  // namespace lockstep::transport
