// Bytes that a worker sends, by the link that they take.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep::parallel {

struct SentBytes {
  std::uint64_t all = 0;
  // Of these to other machines; nothing where that hangs on the algorithm a communicator chooses.
  std::optional<std::uint64_t> across = 0;

  SentBytes& operator+=(const SentBytes& more) {
    all += more.all;
    across = across && more.across ? std::optional(*across + *more.across) : std::nullopt;
    return *this;
  }
  friend SentBytes operator+(SentBytes one, const SentBytes& other) { return one += other; }
  friend SentBytes operator*(std::uint64_t times, SentBytes one) {
    one.all *= times;
    if (one.across) *one.across *= times;
    return one;
  }
};

}  // namespace lockstep::parallel
