// The NIC of a worker or server whose link is emulated (base/net/link_emulation.h).
//
// What goes out is cut into chunks; before each stand 16 bytes that tell when its first byte would
// come to the other NIC. What is sent at a time is little ahead of what the line could have taken,
// so that a message of more importance waits for no more than that.
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
    // About two milliseconds of the line: every chunk wakes a thread at either end, where others
    // compute.
    const double two_milliseconds = link.bytes_per_second / 500;
    chunk_ = static_cast<std::size_t>(std::clamp<double>(two_milliseconds, 4 << 10, 256 << 10));
  }

  std::size_t chunk() const { return chunk_; }
  // From when on another chunk may be sent.
  Time may_send_at() const { return egress_.free_at() - link_.passage_time(chunk_); }

  // What is ready since then leaves as if the line had taken it by itself in the meantime.
  ChunkHeader send(std::size_t bytes, Time ready_at) {
    const Time gone = egress_.book(bytes, ready_at);
    const Time first = gone - link_.passage_time(bytes) + link_.delay;
    return {first.time_since_epoch().count(), bytes};
  }
  // When the last byte of the chunk has come in.
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
