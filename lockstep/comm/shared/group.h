// The ranks of one communicator on one node, and the protocol of their operations.
//
// An operation starts with a *post*: every rank writes its sequence number, its fingerprint and
// perhaps its payload where the others look for it. Posts are double-buffered: a rank writes post k
// only after all have written post k-1, because then no rank still reads post k-2. Longer
// operations have *phases*: at the end of a phase a rank increments its counter and waits for the
// counters of the others. Every rank takes part in the same number of phases of an operation.
//
// A Group is used by one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/fault.h"
#include "lockstep/comm/shared/segment.h"
#include "lockstep/comm/shared/waiter.h"

namespace lockstep::shared {

// Some bytes of a post's payload, [begin, end).
struct PayloadBytes {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class Group {
 public:
  // `me` is the number of this rank among the local ranks; `ranks[i]` is the communicator's rank of
  // local rank i, and `shares_cpu[i]` whether it may run on a CPU of this rank.
  Group(Segment segment, int me, std::vector<int> ranks, std::vector<bool> shares_cpu,
        WaitPolicy wait_policy, std::chrono::nanoseconds timeout, Fault& fault);

  int me() const { return me_; }
  int size() const { return segment_.ranks(); }
  WaitPolicy wait_policy() const { return wait_policy_; }
  const Segment& segment() const { return segment_; }
  int rank_of(int local) const { return ranks_[static_cast<std::size_t>(local)]; }

  // Starts operation `fingerprint.sequence`; sequences count up from 1 without gaps.
  // Between begin() and publish() the post may be filled, also with some bytes of payload.
  Post& begin(const Fingerprint& fingerprint);
  void publish(Post& post, PayloadBytes written = {});

  // Waits for the post of local rank j for the current operation; `to_read` are the bytes of its
  // payload that will be read. Throws Error(kMismatch) when j is in another operation. Posts that
  // an operation did not await are compared by the next begin().
  const Post& await_post(int j, PayloadBytes to_read = {});
  void await_all_posts();
  // Notes that every other rank has posted: await_post() was called for each, or by another rank
  // that this one waited for.
  void note_all_posts();

  // Throws Error(kMismatch) if a rank has posted another operation. Does not wait.
  void compare_posts() const;

  // Marks the end of a phase of this rank; returns the count to await.
  std::uint64_t arrive();
  // Waits until local rank j, or all, have reached that count.
  void await(int j, std::uint64_t phase);
  void await_all(std::uint64_t phase);
  void sync() { await_all(arrive()); }

  // Throws when the communicator is broken, when a rank this operation needs has left or is in
  // another operation, or when `waited` exceeds the deadline. Called by every long wait.
  void check(std::chrono::nanoseconds waited);

  // Symmetric memory: `bases[j]` is the address of local rank j's part of an allocation in this
  // process.
  void add_allocation(std::uint32_t id, std::vector<std::byte*> bases, std::size_t bytes);
  void remove_allocation(std::uint32_t id);
  Place find(const void* data, std::size_t bytes) const;
  std::byte* at(int j, const Place& place) const;

  // Announces that this rank takes part in no further operation.
  void leave();

 private:
  struct Allocation {
    std::vector<std::byte*> bases;
    std::size_t bytes;
  };

  const Post& post_of(int j) const { return segment_.area(j).posts[sequence_ % 2]; }
  Post& next_post() { return segment_.area(me_).posts[(sequence_ + 1) % 2]; }
  void take_back_payload();
  bool posted(int j, std::uint64_t sequence) const {
    return segment_.area(j).posts[sequence % 2].sequence.load(std::memory_order_acquire) >=
           sequence;
  }
  // Whether no local rank that shares a CPU with this one is behind; behind(i) says whether rank i
  // is.
  template <class Behind>
  bool keeps_cpu(Behind&& behind) const;
  std::vector<int> laggards() const;
  void ring_all();
  const Post& compared(int j) const;  // the post of j, which has arrived; throws Error(kMismatch)
  [[noreturn]] void fail_mismatch(int j) const;

  Segment segment_;
  int me_;
  std::vector<int> ranks_;
  std::vector<bool> shares_cpu_;
  WaitPolicy wait_policy_;
  std::chrono::nanoseconds timeout_;
  Fault& fault_;
  Waiter waiter_;
  std::uint64_t sequence_ = 0;    // of the current operation
  std::uint64_t hash_ = 0;        // of its fingerprint
  PayloadBytes written_[2];       // of the payloads of its two posts, when they were last used
  std::uint64_t all_posted_ = 0;  // every rank is known to have posted this far
  bool last_is_read_ = true;      // whether this rank's previous post was probably read
  std::uint64_t phase_ = 0;       // phases this rank has finished
  std::uint64_t awaited_ = 0;     // phases this rank waits for
  std::map<std::uint32_t, Allocation> allocations_;
};

}  // namespace lockstep::shared
