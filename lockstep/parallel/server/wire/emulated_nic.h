// The emulated NIC of a worker or server (base/net/link_emulation.h).
//
// Data is sent in chunks, each after a header of 16 bytes with the time at which its first byte
// would reach the other NIC. Sending is only slightly ahead of the emulated link, so an urgent
// message waits only for a short time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/net/link_emulation.h"

namespace lockstep::parallel {

struct ChunkHeader {
  std::int64_t first_ns = 0;  // of the steady clock
  std::uint64_t bytes = 0;    // that follow
};
static_assert(sizeof(ChunkHeader) == 16);

class EmulatedNic {
 public:
  using Time = LinkPace::Time;

  explicit EmulatedNic(const LinkEmulation& link)
      : link_(link), egress_(link.bytes_per_second), ingress_(link.bytes_per_second) {
    // About two milliseconds of the link: every chunk wakes a thread on both ends.
    const double two_milliseconds = link.bytes_per_second / 500;
    chunk_ = static_cast<std::size_t>(std::clamp<double>(two_milliseconds, 4 << 10, 256 << 10));
  }

  std::size_t chunk() const { return chunk_; }
  // When the next chunk may be sent.
  Time may_send_at() const { return egress_.free_at() - link_.passage_time(chunk_); }

  // Data that was ready earlier is booked as if it had been sent then.
  ChunkHeader send(std::size_t bytes, Time ready_at) {
    const Time gone = egress_.book(bytes, ready_at);
    const Time first = gone - link_.passage_time(bytes) + link_.delay;
    return {first.time_since_epoch().count(), bytes};
  }
  // When the last byte of the chunk arrives.
  Time receive(const ChunkHeader& chunk) {
    return ingress_.book(chunk.bytes, Time(std::chrono::nanoseconds(chunk.first_ns)));
  }

 private:
  LinkEmulation link_;
  LinkPace egress_;
  LinkPace ingress_;
  std::size_t chunk_ = 0;
};

}  // namespace lockstep::parallel
