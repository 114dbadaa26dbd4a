#include "lockstep/comm/shared/segment.h"

namespace lockstep::shared {
namespace {

std::size_t rings_end(std::size_t n) { return n * sizeof(Area) + 2 * n * n * sizeof(Ring); }

std::size_t staging_bytes(std::size_t window_bytes) {
  return kOneShotSlots * kOneShotBytes + kWindows * window_bytes;
}

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(offsetof(Post, payload) == 16, "a small payload must share the sequence's line");

}  // namespace

std::size_t Segment::bytes(int ranks, std::size_t window_bytes) {
  const auto n = static_cast<std::size_t>(ranks);
  return rings_end(n) + n * staging_bytes(window_bytes);
}

std::byte* Segment::staging(int rank) const {
  return base_ + rings_end(static_cast<std::size_t>(ranks_)) +
         static_cast<std::size_t>(rank) * staging_bytes(window_);
}

}  // namespace lockstep::shared
