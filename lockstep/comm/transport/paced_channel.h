// A Channel through rings with the speed of an emulated link (comm.emulate).
//
// The stream is cut into *pieces*. In the ring a piece is a header, with its length and the time at
// which its first byte reaches the receiver's NIC, and its bytes:
//
//   sender     books the piece on its NIC as it puts it into the ring. It is at most a little
//              ahead of its NIC, as a socket's buffer would be; then it has to wait.
//   receiver   takes pieces out of the ring as they come, ahead of their time, so that no length of
//              link fills the ring. Once the first byte's time has come it books the piece on its
//              own NIC. No byte of it is visible before the time at which the last one arrives.
//
// Nothing here waits: write_due() and read_due() say when to try again.
//
// As with any Channel, one thread may write while another reads. All channels of a rank, of all its
// communicators, share its NIC (with comm.emulated_nodes, those of a whole emulated node).
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/net/link_emulation.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/comm/transport/channel.h"
#include "lockstep/comm/transport/ring_channel.h"

namespace lockstep::transport {

// The NIC of one rank, or of all ranks that share its lines.
struct EmulatedNic {
  explicit EmulatedNic(const LinkEmulation& emulation)
      : link(emulation), egress(link.bytes_per_second), ingress(link.bytes_per_second) {}
  // Uses lines in `shared_memory`.
  EmulatedNic(const LinkEmulation& emulation, LinkPace::Line& out, LinkPace::Line& in,
              std::shared_ptr<void> shared_memory)
      : link(emulation),
        egress(link.bytes_per_second, out),
        ingress(link.bytes_per_second, in),
        memory(std::move(shared_memory)) {}

  const LinkEmulation link;
  LinkPace egress;
  LinkPace ingress;
  std::shared_ptr<void> memory;
};

class PacedChannel : public Channel {
 public:
  PacedChannel(const RingChannel& ring, std::shared_ptr<EmulatedNic> nic);

  std::size_t write(std::span<const std::span<const std::byte>> parts) override;
  std::span<const std::byte> peek() override;
  void consume(std::size_t bytes) override;
  Deadline write_due() const override { return write_due_; }
  Deadline read_due() const override;

 private:
  using Time = LinkPace::Time;
  struct Piece {
    std::vector<std::byte> bytes;
    Time first;  // when its first byte reaches the NIC
  };

  void take_from_ring();

  RingChannel ring_;
  std::shared_ptr<EmulatedNic> nic_;
  std::size_t piece_bytes_;  // the longest piece
  std::size_t most_held_;    // bytes; further pieces stay in the ring

  // Used by the writing thread.
  Deadline write_due_ = kNoDeadline;

  // Used by the reading thread.
  std::deque<Piece> pieces_;
  std::size_t held_ = 0;                       // bytes of all pieces
  bool booked_ = false;                        // the front piece is booked,
  Time arrived_{};                             // arrives at this time,
  bool here_ = false;                          // has arrived,
  std::size_t consumed_ = 0;                   // and was read this far
  std::vector<std::vector<std::byte>> spare_;  // memory of pieces that were read
};

}  // namespace lockstep::transport
