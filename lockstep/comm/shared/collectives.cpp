#include "lockstep/comm/shared/collectives.h"

#include <algorithm>
#include <array>
#include <span>

#include "lockstep/comm/reduce/combine.h"
#include "lockstep/comm/shared/call_layout.h"
#include "lockstep/comm/shared/copy.h"

namespace lockstep::shared {
namespace {

// What all ranks get together does not stay in the cache from here on.
constexpr std::size_t kLargeBytes = std::size_t{48} << 20;

// From this much output on, all_gather and all_to_all write where they could as well read. Measured
// with 2 ranks: on a Neoverse N1 it is faster from 26 KiB (all_gather) and 11 KiB (all_to_all) on,
// on a Xeon from 1 or 2 MiB on (all_gather) and all the same (all_to_all).
#if defined(__x86_64__)
constexpr std::size_t kWorthWriting = std::size_t{1} << 20;
#else
constexpr std::size_t kWorthWriting = std::size_t{20} << 10;
#endif

// Whether a payload travels in posts. Where many ranks reduce, the limit is below the size of a
// post.
bool travels_in_posts(std::size_t bytes, Collective kind, int ranks) {
  constexpr std::size_t kAlways = 1024;
  static_assert(kAlways <= kInlineBytes);
  return bytes <= kAlways || (bytes <= kInlineBytes && bytes <= one_shot_limit(kind, ranks));
}

class Operation : private CallLayout {
 public:
  Operation(Group& group, const Call& call, const Fingerprint& fingerprint)
      : CallLayout(call, fingerprint, group.me(), group.size()),
        group_(group),
        fingerprint_(fingerprint),
        large_(call.out.count * element_ *
                   static_cast<std::size_t>(call.kind == Collective::kGather ? 1 : n_) >=
               kLargeBytes) {}

  void run() {
    Post& post = group_.begin(fingerprint_);
    const std::size_t largest = largest_input_bytes();
    if (call_.kind == Collective::kBarrier) {
      meet(post);
    } else if (travels_in_posts(largest, call_.kind, n_)) {
      copy_for_others(post.payload);
      group_.publish(post, bytes_for_others());
      take([&](int j) {
        if (j == me_) return my_part(call_.in.bytes);
        const PayloadBytes mine = bytes_for_me(j);
        return group_.await_post(j, mine).payload + mine.begin;
      });
      if (!has_root(call_.kind)) group_.note_all_posts();
    } else if (const bool small = largest <= one_shot_limit(call_.kind, n_);
               small && group_.wait_policy().crowded) {
      // A second meeting would cost more than copying a little, so all copy without asking.
      copy_for_others(slot(me_));
      group_.publish(post);
      take([&](int j) {
        if (j != me_) group_.await_post(j);
        return in_slot(j);
      });
    } else {
      offer(post, small);
      group_.publish(post);
      group_.await_all_posts();
      run_offered();
    }
  }

 private:
  // With a CPU for every rank, all wait for all. Where ranks share CPUs, rank 0 waits for all and
  // lets them go: every other rank looks at one line, and at those of ranks that share its CPU,
  // instead of n, and rank 0, where most of what comes next starts, is the first to leave.
  void meet(Post& post) {
    group_.publish(post);
    if (me_ == 0 || !group_.wait_policy().crowded) group_.await_all_posts();
    if (!group_.wait_policy().crowded) return;
    const std::uint64_t phase = group_.arrive();
    if (me_ == 0) return;
    group_.await(0, phase);
    group_.note_all_posts();  // rank 0 has read and compared them
  }

  // Copies this rank's input, if it has one, to where others read it.
  void copy_for_others(std::byte* to) const {
    if (!gives(me_)) return;
    const std::size_t end = input_bytes(me_);
    if (!blocked()) return copy_bytes(to, call_.in.bytes, end);
    const std::size_t own = block(me_).begin * element_;
    const std::size_t after = block(me_).end * element_;
    copy_bytes(to, call_.in.bytes, own);
    copy_bytes(to + own, call_.in.bytes + after, end - after);
  }

  void combine_into(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                    std::size_t count) {
    combine(inputs, outputs, count, call_.in.dtype, call_.op,
            call_.op.kind == ReduceOp::kMean ? n_ : 1);
  }

  // Copies to where a result is to lie.
  void deliver(std::byte* to, const std::byte* from, std::size_t bytes) const {
    if (large_) return stream_bytes(to, from, bytes);
    copy_bytes(to, from, bytes);
  }

  // The same to the first `outputs` of outputs_.
  void deliver_to_all(std::size_t outputs, const std::byte* from, std::size_t bytes) const {
    const std::span<std::byte* const> to(outputs_.data(), outputs);
    if (large_) return stream_to_all(to, from, bytes);
    copy_to_all(to, from, bytes);
  }

  // Reads this rank's result from the inputs of all ranks. input(j) is the part of rank j's input
  // for this rank, and may wait for it.
  template <class Input>
  void take(Input&& input) {
    std::byte* out = call_.out.bytes;
    switch (call_.kind) {
      case Collective::kBroadcast:
        if (me_ != call_.root) deliver(out, input(call_.root), input_bytes(call_.root));
        return;
      case Collective::kScatter:
        deliver(out, input(call_.root), block(me_).size() * element_);
        return;
      case Collective::kGather:
        if (me_ != call_.root) return;
        [[fallthrough]];
      case Collective::kAllGather:
        for (int k = 0; k < n_; ++k) {
          const int j = (me_ + k) % n_;
          deliver(out + block(j).begin * element_, input(j), block(j).size() * element_);
        }
        return;
      case Collective::kAllToAll:
        for (int k = 0; k < n_; ++k) {
          const int j = (me_ + k) % n_;
          deliver(out + block(j).begin * element_, input(j), block(me_).size() * element_);
        }
        return;
      case Collective::kReduce:
        if (me_ != call_.root) return;
        [[fallthrough]];
      case Collective::kAllReduce:
        return take_combined(input, count_);
      case Collective::kReduceScatter:
        return take_combined(input, block(me_).size());
      default:
        return;
    }
  }

  template <class Input>
  void take_combined(Input&& input, std::size_t count) {
    for (int j = 0; j < n_; ++j) inputs_[static_cast<std::size_t>(j)] = input(j);
    combine_into({inputs_.data(), static_cast<std::size_t>(n_)}, {&call_.out.bytes, 1}, count);
  }

  // Whether ranks can do the call by writing what they give into the others' outputs, and whether
  // they can do it by reading what they get out of the others' inputs. Where neither is true, they
  // have to do both.
  bool pushes() const {
    return call_.kind == Collective::kGather || call_.kind == Collective::kAllGather ||
           call_.kind == Collective::kAllToAll;
  }
  bool pulls() const {
    return call_.kind == Collective::kScatter || call_.kind == Collective::kReduceScatter ||
           call_.kind == Collective::kAllGather || call_.kind == Collective::kAllToAll;
  }
  // Whether buffers that are so can be worked in as they are.
  bool is_direct(bool readable, bool writable) const {
    return (readable && writable) || (pushes() && writable) || (pulls() && readable);
  }

  void offer(Post& post, bool small) {
    const bool is_written = gets(me_) && (pushes() || !pulls());
    // In place, all_to_all would overwrite what others still read.
    const bool overwrites =
        call_.kind == Collective::kAllToAll && call_.in.bytes == call_.out.bytes;
    auto& offer = post.offer;
    offer.in = gives(me_) ? group_.find(call_.in.bytes, input_bytes(me_)) : Place{};
    offer.out = is_written ? group_.find(call_.out.bytes, call_.out.count * element_) : Place{};
    offer.readable = !overwrites && (!gives(me_) || offer.in.allocation != 0);
    offer.writable = !overwrites && (!is_written || offer.out.allocation != 0);
    // Only the root of a gather knows whether the others can write to its output.
    const bool guesses = call_.kind == Collective::kGather && me_ != call_.root;
    const bool direct = guesses ? offer.readable : is_direct(offer.readable, offer.writable);
    offer.staged = small && (!gives(me_) || !direct);
    if (offer.staged) copy_for_others(slot(me_));
  }

  // All ranks read the offers of all, so they choose alike.
  void run_offered() {
    bool readable = true;
    bool writable = true;
    bool staged = true;
    for (int j = 0; j < n_; ++j) {
      readable &= their_post(j).offer.readable;
      writable &= their_post(j).offer.writable;
      staged &= their_post(j).offer.staged;
    }
    if (is_direct(readable, writable)) {
      const bool reads = pulls() && readable && call_.out.count * element_ < kWorthWriting;
      run_symmetric(pushes() && writable && !reads);
    } else if (staged) {
      take([&](int j) { return in_slot(j); });
    } else if (call_.kind == Collective::kAllReduce || call_.kind == Collective::kReduce) {
      reduce_windowed();
    } else {
      move_windowed();
    }
  }

  const Post& their_post(int j) const {
    return group_.segment().area(j).posts[fingerprint_.sequence % 2];
  }
  std::byte* slot(int j) const { return group_.segment().one_shot(j, fingerprint_.sequence); }
  // What is for this rank of an input that every rank but this one has in its slot.
  const std::byte* in_slot(int j) const {
    return j == me_ ? my_part(call_.in.bytes) : slot(j) + bytes_for_me(j).begin;
  }
  std::byte* their_in(int j) const { return group_.at(j, their_post(j).offer.in); }
  std::byte* their_out(int j) const { return group_.at(j, their_post(j).offer.out); }

  void run_symmetric(bool pushing) {
    switch (call_.kind) {
      case Collective::kAllReduce:
      case Collective::kReduce: {
        const Range slice = part_of(count_, n_, me_);
        std::size_t outputs = 0;
        for (int k = 0; k < n_; ++k) {
          inputs_[static_cast<std::size_t>(k)] = their_in(k) + slice.begin * element_;
          const int j = (me_ + k) % n_;
          if (gets(j)) outputs_[outputs++] = their_out(j) + slice.begin * element_;
        }
        combine_into({inputs_.data(), static_cast<std::size_t>(n_)}, {outputs_.data(), outputs},
                     slice.size());
        break;
      }
      case Collective::kBroadcast: {
        const Range slice = part_of(count_, n_, me_);
        std::size_t outputs = 0;
        for (int j = 0; j < n_; ++j) {
          if (j != call_.root) outputs_[outputs++] = their_out(j) + slice.begin * element_;
        }
        deliver_to_all(outputs, their_in(call_.root) + slice.begin * element_,
                       slice.size() * element_);
        break;
      }
      default:
        if (pushing) {
          push();
        } else {
          take([&](int j) { return my_part(their_in(j)); });
        }
        break;
    }
    group_.sync();
  }

  // Writes what this rank gives where it belongs.
  void push() {
    const std::size_t to = block(me_).begin * element_;
    if (call_.kind == Collective::kAllToAll) {
      for (int k = 0; k < n_; ++k) {
        const int j = (me_ + k) % n_;
        deliver(their_out(j) + to, call_.in.bytes + block(j).begin * element_,
                block(me_).size() * element_);
      }
      return;
    }
    std::size_t outputs = 0;
    for (int k = 0; k < n_; ++k) {
      const int j = (me_ + k) % n_;
      if (gets(j)) outputs_[outputs++] = their_out(j) + to;
    }
    deliver_to_all(outputs, call_.in.bytes, input_bytes(me_));
  }

  // all_reduce and reduce. Window w of the vector is cut into a slice per rank. Rank r copies all
  // slices but its own into its window (stage), combines slice r of all ranks into its output and
  // into the free slice r of its window (reduce), and takes the other slices from the others'
  // windows (finish). With three windows in turn one synchronisation a window is enough:
  //
  //   stage 0 | sync | reduce 0, stage 1 | sync | finish 0, reduce 1, stage 2 | sync | ...
  void reduce_windowed() {
    const std::size_t most = group_.segment().window_bytes() / element_;
    const std::size_t windows = (count_ + most - 1) / most;
    const auto window = [&](std::size_t w) -> Range {
      return {count_ * w / windows, count_ * (w + 1) / windows};
    };
    stage_slices(window(0), 0);
    group_.sync();
    for (std::size_t w = 0; w < windows; ++w) {
      if (w > 0) finish_slices(window(w - 1), w - 1);
      reduce_slice(window(w), w);
      if (w + 1 < windows) stage_slices(window(w + 1), w + 1);
      group_.sync();
    }
    finish_slices(window(windows - 1), windows - 1);
    // The next operation that stages waits for the posts of all ranks, and a rank posts after it
    // has finished.
  }

  void stage_slices(Range window, std::size_t w) {
    std::byte* mine = group_.segment().window(me_, w);
    for (int j = 0; j < n_; ++j) {
      if (j == me_) continue;
      const Range slice = part_of(window.size(), n_, j);
      copy_bytes(mine + slice.begin * element_,
                 call_.in.bytes + (window.begin + slice.begin) * element_, slice.size() * element_);
    }
  }

  void reduce_slice(Range window, std::size_t w) {
    const Range slice = part_of(window.size(), n_, me_);
    for (int j = 0; j < n_; ++j) {
      inputs_[static_cast<std::size_t>(j)] =
          j == me_ ? call_.in.bytes + (window.begin + slice.begin) * element_
                   : group_.segment().window(j, w) + slice.begin * element_;
    }
    outputs_[0] = group_.segment().window(me_, w) + slice.begin * element_;
    if (gets(me_)) outputs_[1] = call_.out.bytes + (window.begin + slice.begin) * element_;
    combine_into({inputs_.data(), static_cast<std::size_t>(n_)},
                 {outputs_.data(), gets(me_) ? 2u : 1u}, slice.size());
  }

  void finish_slices(Range window, std::size_t w) {
    if (!gets(me_)) return;
    for (int j = 0; j < n_; ++j) {
      if (j == me_) continue;
      const Range slice = part_of(window.size(), n_, j);
      copy_bytes(call_.out.bytes + (window.begin + slice.begin) * element_,
                 group_.segment().window(j, w) + slice.begin * element_, slice.size() * element_);
    }
  }

  // Everything else. Where an input has a block for every rank, a window holds a piece of each
  // block; otherwise it holds a piece of the input.
  void move_windowed() {
    std::size_t longest = 0;
    for (int j = 0; j < n_; ++j) {
      longest = std::max(longest, blocked() ? block(j).size() : input_elements(j));
    }
    std::size_t piece = group_.segment().window_bytes() / element_;
    if (blocked()) piece = std::max<std::size_t>(1, piece / static_cast<std::size_t>(n_));
    for (std::size_t begin = 0, w = 0; begin < longest; begin += piece, ++w) {
      const Range part{begin, begin + piece};
      if (gives(me_)) stage_part(part, w);
      group_.sync();
      take_part(part, w);
    }
  }

  static Range clip(Range part, std::size_t size) {
    return {std::min(part.begin, size), std::min(part.end, size)};
  }

  void stage_part(Range part, std::size_t w) {
    std::byte* mine = group_.segment().window(me_, w);
    if (!blocked()) {
      const Range own = clip(part, input_elements(me_));
      copy_bytes(mine, call_.in.bytes + own.begin * element_, own.size() * element_);
      return;
    }
    for (int j = 0; j < n_; ++j) {
      if (j == me_) continue;  // read in place
      const Range own = clip(part, block(j).size());
      copy_bytes(mine + static_cast<std::size_t>(j) * part.size() * element_,
                 call_.in.bytes + (block(j).begin + own.begin) * element_, own.size() * element_);
    }
  }

  void take_part(Range part, std::size_t w) {
    const auto theirs = [&](int j) -> const std::byte* {
      const std::size_t mine = blocked() ? block(me_).begin : 0;
      if (j == me_) return call_.in.bytes + (mine + part.begin) * element_;
      const std::size_t slot = blocked() ? static_cast<std::size_t>(me_) * part.size() : 0;
      return group_.segment().window(j, w) + slot * element_;
    };
    std::byte* out = call_.out.bytes;
    const auto take_block = [&](int j, std::size_t offset, std::size_t size) {
      const Range range = clip(part, size);
      if (range.size() == 0) return;
      deliver(out + (offset + range.begin) * element_, theirs(j), range.size() * element_);
    };
    switch (call_.kind) {
      case Collective::kBroadcast:
        if (me_ != call_.root) take_block(call_.root, 0, count_);
        return;
      case Collective::kScatter:
        return take_block(call_.root, 0, block(me_).size());
      case Collective::kGather:
        if (me_ != call_.root) return;
        [[fallthrough]];
      case Collective::kAllGather:
        for (int j = 0; j < n_; ++j) take_block(j, block(j).begin, block(j).size());
        return;
      case Collective::kAllToAll:
        for (int j = 0; j < n_; ++j) take_block(j, block(j).begin, block(me_).size());
        return;
      case Collective::kReduceScatter: {
        const Range range = clip(part, block(me_).size());
        for (int j = 0; j < n_; ++j) inputs_[static_cast<std::size_t>(j)] = theirs(j);
        outputs_[0] = out + range.begin * element_;
        combine_into({inputs_.data(), static_cast<std::size_t>(n_)}, {outputs_.data(), 1},
                     range.size());
        return;
      }
      default:
        return;
    }
  }

  Group& group_;
  const Fingerprint& fingerprint_;
  bool large_;  // its results would only push other data out of the cache
  std::array<const std::byte*, kMaxLocalRanks> inputs_;
  std::array<std::byte*, kMaxLocalRanks> outputs_;
};

}  // namespace

bool serves(const Call& call) {
  // Block sizes of all_to_all_v are known to pairs of ranks only.
  return !(call.kind == Collective::kAllToAll && call.varying);
}

std::size_t one_shot_limit(Collective kind, int ranks) {
  // Measured: from about this size on, reading the slots of all ranks costs more than a second
  // synchronisation.
  const std::size_t reads = reduces(kind) ? static_cast<std::size_t>(ranks) : 2;
  return std::min(kOneShotBytes, std::size_t{32} * 1024 / reads);
}

void run(Group& group, const Call& call, const Fingerprint& fingerprint) {
  Operation(group, call, fingerprint).run();
}

}  // namespace lockstep::shared
