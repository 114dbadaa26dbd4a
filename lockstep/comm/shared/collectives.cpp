#include "lockstep/comm/shared/collectives.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "lockstep/comm/reduce/combine.h"
#include "lockstep/comm/shared/copy.h"

namespace lockstep::shared {
namespace {

// What all ranks get together does not stay in the cache from here on.
constexpr std::size_t kLargeBytes = std::size_t{48} << 20;

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

// Part `index` of `parts` of `count` elements, cut at multiples of 64 elements so that no cache
// line has two writers.
Range part_of(std::size_t count, int parts, int index) {
  constexpr std::size_t kGrain = 64;
  const std::size_t grains = (count + kGrain - 1) / kGrain;
  const auto n = static_cast<std::size_t>(parts);
  const auto i = static_cast<std::size_t>(index);
  return {std::min(count, grains * i / n * kGrain), std::min(count, grains * (i + 1) / n * kGrain)};
}

// The largest payload that travels in posts: where many ranks reduce, less than there is room for.
std::size_t inline_limit(Collective kind, int ranks) {
  return std::min(kInlineBytes, std::max<std::size_t>(1024, one_shot_limit(kind, ranks)));
}

class Operation {
 public:
  Operation(Group& group, const Call& call, const Fingerprint& fingerprint)
      : group_(group),
        call_(call),
        fingerprint_(fingerprint),
        element_(size_of(dtype_of_call(call))),
        me_(group.me()),
        n_(group.size()),
        large_(call.out.count * element_ >=
               kLargeBytes / static_cast<std::size_t>(call.kind == Collective::kGather ? 1 : n_)) {}

  void run() {
    Post& post = group_.begin(fingerprint_);
    const std::size_t largest = largest_input_bytes();
    if (call_.kind == Collective::kBarrier) {
      meet(post);
    } else if (largest <= inline_limit(call_.kind, n_)) {
      copy_for_others(post.payload);
      group_.publish(post, bytes_for_others());
      take([&](int j) {
        return j == me_ ? call_.in.bytes : group_.await_post(j, bytes_for_me(j)).payload;
      });
      if (!has_root(call_.kind)) group_.note_all_posts();
    } else if (const bool small = largest <= one_shot_limit(call_.kind, n_);
               small && group_.patience().crowded) {
      // A second meeting would cost more than copying a little, so all copy without asking.
      copy_for_others(slot(me_));
      group_.publish(post);
      take([&](int j) -> const std::byte* {
        if (j == me_) return call_.in.bytes;
        group_.await_post(j);
        return slot(j);
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
    if (me_ == 0 || !group_.patience().crowded) group_.await_all_posts();
    if (!group_.patience().crowded) return;
    const std::uint64_t phase = group_.arrive();
    if (me_ == 0) return;
    group_.await(0, phase);
    group_.note_all_posts();  // rank 0 has seen and compared them
  }

  bool gives(int j) const {
    return !(call_.kind == Collective::kBroadcast || call_.kind == Collective::kScatter) ||
           j == call_.root;
  }
  bool gets(int j) const {
    return !(call_.kind == Collective::kReduce || call_.kind == Collective::kGather) ||
           j == call_.root;
  }

  // Block j of a vector with one block per rank, in elements.
  Range block(int j) const {
    if (call_.varying) {
      const auto begin =
          std::accumulate(call_.counts.begin(), call_.counts.begin() + j, std::size_t{0});
      return {begin, begin + call_.counts[static_cast<std::size_t>(j)]};
    }
    const auto size = call_.kind == Collective::kAllToAll
                          ? fingerprint_.count / static_cast<std::size_t>(n_)
                          : fingerprint_.count;
    return {size * static_cast<std::size_t>(j), size * static_cast<std::size_t>(j + 1)};
  }

  std::size_t input_elements(int j) const {
    switch (call_.kind) {
      case Collective::kAllGather:
      case Collective::kGather:
        return block(j).size();
      case Collective::kScatter:
      case Collective::kReduceScatter:
      case Collective::kAllToAll:
        return block(n_ - 1).end;
      default:
        return fingerprint_.count;
    }
  }
  std::size_t input_bytes(int j) const { return input_elements(j) * element_; }
  std::size_t largest_input_bytes() const {
    if (!call_.varying) return input_bytes(0);
    std::size_t largest = 0;
    for (int j = 0; j < n_; ++j) largest = std::max(largest, input_bytes(j));
    return largest;
  }

  // Whether an input has a block for every rank, of which rank j reads block j.
  bool blocked() const {
    return call_.kind == Collective::kScatter || call_.kind == Collective::kReduceScatter ||
           call_.kind == Collective::kAllToAll;
  }

  // Copies this rank's input, if it has one, to where others read it. Its own block, which nobody
  // else wants, is left out: a rank reads its own input where it lies.
  void copy_for_others(std::byte* to) const {
    if (!gives(me_)) return;
    const std::size_t end = input_bytes(me_);
    if (!blocked()) return copy_bytes(to, call_.in.bytes, end);
    const std::size_t own = block(me_).begin * element_;
    const std::size_t after = block(me_).end * element_;
    copy_bytes(to, call_.in.bytes, own);
    copy_bytes(to + after, call_.in.bytes + after, end - after);
  }
  PayloadBytes bytes_for_others() const {
    if (!gives(me_)) return {};
    if (blocked() && me_ == 0) return {block(0).end * element_, input_bytes(0)};
    if (blocked() && me_ == n_ - 1) return {0, block(me_).begin * element_};
    return {0, input_bytes(me_)};
  }
  PayloadBytes bytes_for_me(int j) const {
    if (!blocked()) return {0, input_bytes(j)};
    return {block(me_).begin * element_, block(me_).end * element_};
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

  // Takes this rank's result out of everyone's complete inputs; input(j) may wait for rank j.
  template <class Input>
  void take(Input&& input) {
    std::byte* out = call_.out.bytes;
    switch (call_.kind) {
      case Collective::kBroadcast:
        if (me_ != call_.root) deliver(out, input(call_.root), input_bytes(call_.root));
        return;
      case Collective::kScatter:
        deliver(out, input(call_.root) + block(me_).begin * element_, block(me_).size() * element_);
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
          deliver(out + block(j).begin * element_, input(j) + block(me_).begin * element_,
                  block(me_).size() * element_);
        }
        return;
      case Collective::kReduce:
        if (me_ != call_.root) return;
        [[fallthrough]];
      case Collective::kAllReduce:
        return take_combined(input, {0, fingerprint_.count});
      case Collective::kReduceScatter:
        return take_combined(input, block(me_));
      default:
        return;
    }
  }

  template <class Input>
  void take_combined(Input&& input, Range range) {
    for (int j = 0; j < n_; ++j)
      inputs_[static_cast<std::size_t>(j)] = input(j) + range.begin * element_;
    combine_into({inputs_.data(), static_cast<std::size_t>(n_)}, {&call_.out.bytes, 1},
                 range.size());
  }

  // Whether rank r's part includes writing into the others' outputs.
  bool writes_others() const {
    return call_.kind == Collective::kAllReduce || call_.kind == Collective::kReduce ||
           call_.kind == Collective::kBroadcast || call_.kind == Collective::kGather;
  }

  void offer(Post& post, bool small) {
    const bool others_read = gives(me_);
    const bool others_write = gets(me_) && writes_others();
    post.offer.in = others_read ? group_.find(call_.in.bytes, input_bytes(me_)) : Place{};
    post.offer.out =
        others_write ? group_.find(call_.out.bytes, call_.out.count * element_) : Place{};
    // In place, all_to_all would overwrite what others still read.
    const bool overwrites =
        call_.kind == Collective::kAllToAll && call_.in.bytes == call_.out.bytes;
    post.offer.direct = (!others_read || post.offer.in.allocation != 0) &&
                        (!others_write || post.offer.out.allocation != 0) && !overwrites;
    post.offer.staged = small && (!others_read || !post.offer.direct);
    if (post.offer.staged) copy_for_others(slot(me_));
  }

  // Everyone sees everyone's offer, so all choose alike.
  void run_offered() {
    bool all_direct = true;
    bool all_staged = true;
    for (int j = 0; j < n_; ++j) {
      all_direct &= their_post(j).offer.direct;
      all_staged &= their_post(j).offer.staged;
    }
    if (all_direct) {
      run_symmetric();
    } else if (all_staged) {
      take([&](int j) -> const std::byte* { return j == me_ ? call_.in.bytes : slot(j); });
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
  std::byte* their_in(int j) const { return group_.at(j, their_post(j).offer.in); }
  std::byte* their_out(int j) const { return group_.at(j, their_post(j).offer.out); }

  void run_symmetric() {
    switch (call_.kind) {
      case Collective::kAllReduce:
      case Collective::kReduce: {
        const Range slice = part_of(fingerprint_.count, n_, me_);
        std::size_t outputs = 0;
        for (int j = 0; j < n_; ++j) {
          inputs_[static_cast<std::size_t>(j)] = their_in(j) + slice.begin * element_;
          if (gets(j)) outputs_[outputs++] = their_out(j) + slice.begin * element_;
        }
        combine_into({inputs_.data(), static_cast<std::size_t>(n_)}, {outputs_.data(), outputs},
                     slice.size());
        break;
      }
      case Collective::kBroadcast: {
        const Range slice = part_of(fingerprint_.count, n_, me_);
        const std::byte* from = their_in(call_.root) + slice.begin * element_;
        for (int j = 0; j < n_; ++j) {
          if (j != call_.root)
            deliver(their_out(j) + slice.begin * element_, from, slice.size() * element_);
        }
        break;
      }
      case Collective::kGather:
        deliver(their_out(call_.root) + block(me_).begin * element_, call_.in.bytes,
                input_bytes(me_));
        break;
      default:
        take([&](int j) { return their_in(j); });
        break;
    }
    group_.sync();
  }

  // all_reduce and reduce. Window w of the vector is cut into a slice per rank. Rank r copies all
  // slices but its own into its window (stage), combines everyone's slice r into its output and
  // into the free slice r of its window (reduce), and takes the other slices from the others'
  // windows (finish). With three windows in turn one synchronisation a window is enough:
  //
  //   stage 0 | sync | reduce 0, stage 1 | sync | finish 0, reduce 1, stage 2 | sync | ...
  void reduce_windowed() {
    const std::size_t count = fingerprint_.count;
    const std::size_t most = group_.segment().window_bytes() / element_;
    const std::size_t windows = (count + most - 1) / most;
    const auto window = [&](std::size_t w) -> Range {
      return {count * w / windows, count * (w + 1) / windows};
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
    // The next operation that stages waits for everyone's post, and posting follows finishing.
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
        if (me_ != call_.root) take_block(call_.root, 0, fingerprint_.count);
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
  const Call& call_;
  const Fingerprint& fingerprint_;
  std::size_t element_;
  int me_;
  int n_;
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
  // Measured: reading everyone's slot costs more than a second synchronisation from about here on.
  const std::size_t reads = reduces(kind) ? static_cast<std::size_t>(ranks) : 2;
  return std::min(kOneShotBytes, std::size_t{32} * 1024 / reads);
}

void run(Group& group, const Call& call, const Fingerprint& fingerprint) {
  Operation(group, call, fingerprint).run();
}

}  // namespace lockstep::shared
