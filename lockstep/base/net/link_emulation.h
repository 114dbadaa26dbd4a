// Slow links made up on a fast machine: how fast they are, and the clockwork that keeps to it.
//
// The model: every rank (or server) has one full-duplex NIC. What it sends, to all peers
// together, leaves at `bytes_per_second` at most; what it receives, from all together, comes in at
// that at most; and every byte comes in `delay` after it went out. So a NIC is two LinkPaces, one
// for each direction, and between two NICs a piece of `n` bytes goes like this:
//
//   sender     gone = egress.book(n, now)                    its last byte has left
//              first = gone - passage_time(n) + delay        its first byte comes to the other NIC
//   receiver   arrived = ingress.book(n, first)              its last byte has come in
//
// Nobody may see the piece before `arrived`. The receiver books what has come first, first. Pieces
// are best small (64 KiB), as each is seen as a whole.
//
// Nothing here waits, and nothing reads a clock: who has to wait sleeps until the time it was told.
// Times are of the steady clock, which all processes of one machine share; hence `first` may be
// sent along with the bytes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

struct LinkEmulation {
  double bytes_per_second = 0;
  std::chrono::nanoseconds delay{0};

  // How long `bytes` take to pass, without the delay; rounded up.
  std::chrono::nanoseconds passage_time(std::size_t bytes) const;
};

// "1Gbit,100us", "10Gbit" (no delay), "12.5GB/s,1ms": a rate and a time as base/text/units.h has
// them. Error(kInvalidArgument) that quotes the text and shows the form when it is another, when
// the rate is below 1 Kbit, or when the delay is over a minute.
LinkEmulation parse_link_emulation(std::string_view text);
// As it is parsed: "1Gbit,100us", "10Gbit".
std::string to_text(const LinkEmulation& link);

// One direction of a NIC. Any thread may call, and any process that has the line's memory.
class LinkPace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // What has been booked. A line of zeroes is free; it may lie in memory that processes share.
  struct Line {
    std::atomic<std::uint32_t> holder;  // 0: nobody writes it now
    Time free;                          // whole nanoseconds, rounded down ...
    double fraction;                    // ... and what is missing of the next
  };

  explicit LinkPace(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}
  // On a line that others book on, too, and that outlives it.
  LinkPace(double bytes_per_second, Line& line)
      : bytes_per_second_(bytes_per_second), shared_(&line) {}

  // Lets `bytes` pass behind all that is booked already, and not before `ready_at`; returns when
  // the last of them has passed: max(ready_at, free_at()) + bytes / rate. Nanoseconds are rounded
  // up, but never pile up: a thousand small bookings take as long as one of their sum.
  Time book(std::size_t bytes, Time ready_at);

  // When all that is booked has passed.
  Time free_at() const;

 private:
  Line& line() const { return shared_ != nullptr ? *shared_ : own_; }

  double bytes_per_second_;
  mutable Line own_{};
  Line* shared_ = nullptr;
};

}  // namespace lockstep
