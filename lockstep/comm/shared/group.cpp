#include "lockstep/comm/shared/group.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/system/cache_lines.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t kCacheLine = 64;

// Visits the offsets in a post of the cache lines that `bytes` of its payload lie on, but the
// first, where its sequence is.
template <class Visit>
void for_lines(PayloadBytes bytes, Visit&& visit) {
  const std::size_t first = (offsetof(Post, payload) + bytes.begin) / kCacheLine * kCacheLine;
  const std::size_t end = offsetof(Post, payload) + bytes.end;
  for (std::size_t at = std::max(first, kCacheLine); at < end; at += kCacheLine) visit(at);
}

}  // namespace

Group::Group(Segment segment, int me, std::vector<int> ranks, std::vector<bool> shares_cpu,
             WaitPolicy wait_policy, std::chrono::nanoseconds timeout, Fault& fault)
    : segment_(segment),
      me_(me),
      ranks_(std::move(ranks)),
      shares_cpu_(std::move(shares_cpu)),
      wait_policy_(wait_policy),
      timeout_(timeout),
      fault_(fault),
      waiter_(segment_.area(me).doorbell, wait_policy,
              [this](std::chrono::nanoseconds waited) { check(waited); }) {}

Post& Group::begin(const Fingerprint& fingerprint) {
  fault_.throw_if_present();
  // Waits until the slot of this post is free. Posts that the last operation did not need are
  // compared now.
  const bool knew_all = all_posted_ == sequence_;
  if (!knew_all) await_all_posts();
  last_is_read_ = knew_all;
  sequence_ = fingerprint.sequence;
  awaited_ = 0;
  hash_ = hash(fingerprint);
  Post& post = segment_.area(me_).posts[sequence_ % 2];
  post.hash = hash_;
  post.fingerprint = fingerprint;
  return post;
}

void Group::publish(Post& post, PayloadBytes written) {
  post.sequence.store(sequence_, std::memory_order_seq_cst);
  hand_over_line(&post);
  for_lines(written,
            [&](std::size_t at) { hand_over_line(reinterpret_cast<std::byte*>(&post) + at); });
  ring_all();
  written_[sequence_ % 2] = written;
  prefetch_to_write(&next_post());
  if (last_is_read_) take_back_payload();
}

// Fetches the cache lines of the next post while this rank waits, not when it needs them; the next
// operation is often like the last but one. If this rank did not wait for the others in the last
// operation, as the root of a broadcast, they may still be reading its payload. Then only the first
// line, which they have read already, is fetched at once. The others follow when those ranks have
// reached the next operation.
void Group::take_back_payload() {
  auto* next = reinterpret_cast<std::byte*>(&next_post());
  for_lines(written_[(sequence_ + 1) % 2], [&](std::size_t at) { prefetch_to_write(next + at); });
}

void Group::note_all_posts() {
  all_posted_ = sequence_;
  if (!std::exchange(last_is_read_, true)) take_back_payload();
}

const Post& Group::await_post(int j, [[maybe_unused]] PayloadBytes to_read) {
  [[maybe_unused]] const auto* first = reinterpret_cast<const std::byte*>(&post_of(j));
  waiter_.until([&] {
#if defined(__aarch64__)
    // Lines of the payload are asked for together with the one that says it is there, not after.
    // (On x86 that takes them away from the rank that is writing them, and costs more than it
    // gains.)
    for_lines(to_read, [&](std::size_t at) { prefetch_to_read(first + at); });
#endif
    return posted(j, sequence_);
  });
  return compared(j);
}

void Group::await_all_posts() {
  const auto behind = [&](int i) { return !posted(i, sequence_); };
  for (int j = 0; j < size(); ++j) {
    if (j == me_) continue;
    waiter_.until_beside([&] { return !behind(j); }, [&] { return keeps_cpu(behind); });
    compared(j);
  }
  note_all_posts();
}

std::uint64_t Group::arrive() {
  segment_.area(me_).phase.store(++phase_, std::memory_order_seq_cst);
  ring_all();
  return phase_;
}

void Group::await(int j, std::uint64_t phase) {
  awaited_ = phase;
  const auto behind = [&](int i) {
    return segment_.area(i).phase.load(std::memory_order_acquire) < phase;
  };
  waiter_.until_beside([&] { return !behind(j); }, [&] { return keeps_cpu(behind); });
}

void Group::await_all(std::uint64_t phase) {
  for (int j = 0; j < size(); ++j) await(j, phase);
  prefetch_to_write(&segment_.area(me_).phase);
}

void Group::ring_all() {
  for (int j = 0; j < size(); ++j) {
    if (j != me_) ring(segment_.area(j).doorbell);
  }
}

template <class Behind>
bool Group::keeps_cpu(Behind&& behind) const {
  for (int i = 0; i < size(); ++i) {
    if (i != me_ && shares_cpu_[static_cast<std::size_t>(i)] && behind(i)) return false;
  }
  return true;
}

std::vector<int> Group::laggards() const {
  const auto those = [&](auto&& late) {
    std::vector<int> ranks;
    for (int j = 0; j < size(); ++j) {
      if (j != me_ && late(j)) ranks.push_back(rank_of(j));
    }
    return ranks;
  };
  // Who has posted may itself wait for those who have not.
  std::vector<int> absent = those([&](int j) { return !posted(j, sequence_); });
  if (!absent.empty()) return absent;
  return those(
      [&](int j) { return segment_.area(j).phase.load(std::memory_order_acquire) < awaited_; });
}

void Group::compare_posts() const {
  if (sequence_ == 0) return;
  for (int j = 0; j < size(); ++j) {
    // Others post freely once all have posted, so only an equal sequence can be compared.
    const bool comparable =
        j != me_ && post_of(j).sequence.load(std::memory_order_acquire) == sequence_;
    if (comparable && post_of(j).hash != hash_) fail_mismatch(j);
  }
}

void Group::check(std::chrono::nanoseconds waited) {
  fault_.throw_if_present();
  compare_posts();
  const std::vector<int> missing = laggards();
  for (int j = 0; j < size(); ++j) {
    if (std::find(missing.begin(), missing.end(), rank_of(j)) != missing.end() &&
        segment_.area(j).presence.load(std::memory_order_acquire) == Presence::kLeft) {
      throw Error(
          ErrorCode::kPeerLost,
          fmt::format("rank {} has closed its communicator and will not take part in {}",
                      rank_of(j), describe(segment_.area(me_).posts[sequence_ % 2].fingerprint)),
          {rank_of(j)});
    }
  }
  if (waited >= timeout_) {
    throw overdue(describe(segment_.area(me_).posts[sequence_ % 2].fingerprint), waited, missing);
  }
}

const Post& Group::compared(int j) const {
  const Post& post = post_of(j);
  if (post.hash != hash_) fail_mismatch(j);
  return post;
}

void Group::fail_mismatch(int j) const {
  throw disagreement(rank_of(me_), post_of(me_).fingerprint, rank_of(j), post_of(j).fingerprint);
}

void Group::add_allocation(std::uint32_t id, std::vector<std::byte*> bases, std::size_t bytes) {
  allocations_[id] = {std::move(bases), bytes};
}

void Group::remove_allocation(std::uint32_t id) { allocations_.erase(id); }

Place Group::find(const void* data, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  for (const auto& [id, allocation] : allocations_) {
    const auto base =
        reinterpret_cast<std::uintptr_t>(allocation.bases[static_cast<std::size_t>(me_)]);
    if (address >= base && address + bytes <= base + allocation.bytes) return {id, address - base};
  }
  return {};
}

std::byte* Group::at(int j, const Place& place) const {
  const auto found = allocations_.find(place.allocation);
  if (found == allocations_.end()) {
    fail(ErrorCode::kInvalidArgument,
         "rank {} works in symmetric memory that rank {} has already freed; all ranks free it "
         "together",
         rank_of(j), rank_of(me_));
  }
  return found->second.bases[static_cast<std::size_t>(j)] + place.offset;
}

void Group::leave() {
  segment_.area(me_).presence.store(fault_.present() ? Presence::kLeftBroken : Presence::kLeft,
                                    std::memory_order_seq_cst);
  ring_all();
}

}  // namespace lockstep::shared
