// Emulation of slow links on a fast machine: their speed, and the bookkeeping of their time.
//
// The model: every rank (or server) has one full-duplex NIC. It sends at most `bytes_per_second` to
// all peers together, receives at most that from all together, and every byte arrives `delay` after
// it was sent. So a NIC is two LinkPaces, one for each direction. A piece of `n` bytes travels
// between two NICs like this:
//
//   sender     gone = egress.book(n, now)                    its last byte has left
//              first = gone - passage_time(n) + delay        its first byte comes to the other NIC
//   receiver   arrived = ingress.book(n, first)              its last byte has come in
//
// The receiver must not use the piece before `arrived`. It books pieces in the order of their
// arrival. Pieces should be small (64 KiB), because each becomes visible as a whole.
//
// Nothing here waits or reads a clock: the caller sleeps until the returned time. Times are of the
// steady clock, which all processes of one machine share, so `first` may be sent along with the
// bytes.
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

// "1Gbit,100us", "10Gbit" (no delay), "12.5GB/s,1ms": a rate and a time in the forms of
// base/text/units.h. Throws Error(kInvalidArgument), with the text and the expected form, for other
// text, a rate below 1 Kbit or a delay above a minute.
LinkEmulation parse_link_emulation(std::string_view text);
// Text that parse_link_emulation() accepts: "1Gbit,100us", "10Gbit".
std::string to_text(const LinkEmulation& link);

// One direction of a NIC. Thread-safe, also between processes that share the line's memory.
class LinkPace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The bookings of a direction. All zeroes: free. May be in memory that processes share.
  struct Line {
    std::atomic<std::uint32_t> holder;  // a spin lock; 0: free
    Time free;                          // whole nanoseconds, rounded down ...
    double fraction;                    // ... and the fraction of the next
  };

  explicit LinkPace(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}
  // Uses a line that others may book on, too. The line must outlive this object.
  LinkPace(double bytes_per_second, Line& line)
      : bytes_per_second_(bytes_per_second), shared_(&line) {}

  // Books `bytes` after all earlier bookings and not before `ready_at`. Returns the time at which
  // the last byte has passed: max(ready_at, free_at()) + bytes / rate. Rounding to nanoseconds does
  // not accumulate: a thousand small bookings take as long as one of their sum.
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
