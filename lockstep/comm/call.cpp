#include "lockstep/comm/call.h"

#include <functional>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kCollectiveNames[] = {
    "broadcast",      "scatter",    "gather",  "reduce", "all_reduce", "all_gather",
    "reduce_scatter", "all_to_all", "barrier", "send",   "receive",    "copy"};

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

void expect_count(const Call& call, std::string_view side, std::size_t got, std::size_t expected) {
  if (got != expected) {
    fail(ErrorCode::kInvalidArgument, "{}: `{}` has {} elements where {} are needed",
         name(call.kind), side, got, expected);
  }
}

// Checks `block` elements of this rank against `whole` elements of all ranks.
void expect_blocks(const Call& call, std::string_view block_side, std::size_t block,
                   std::string_view whole_side, std::size_t whole, int rank, int size) {
  if (call.varying) {
    expect_count(call, block_side, block, call.counts[static_cast<std::size_t>(rank)]);
    expect_count(call, whole_side, whole, total(call.counts));
  } else {
    expect_count(call, whole_side, whole, block * static_cast<std::size_t>(size));
  }
}

void expect_counts(const Call& call, const std::vector<std::size_t>& counts, int size) {
  if (counts.size() != static_cast<std::size_t>(size)) {
    fail(ErrorCode::kInvalidArgument, "{}: {} block sizes were given for {} ranks", name(call.kind),
         counts.size(), size);
  }
}

void validate_counts(const Call& call, int rank, int size) {
  const bool is_root = rank == call.root;
  if (call.varying) {
    expect_counts(call, call.counts, size);
    if (call.kind == Collective::kAllToAll) expect_counts(call, call.out_counts, size);
  }
  switch (call.kind) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kCopy:
      expect_count(call, "out", call.out.count, call.in.count);
      break;
    case Collective::kReduce:
      if (is_root) expect_count(call, "out", call.out.count, call.in.count);
      break;
    case Collective::kScatter:
      if (is_root) {
        expect_blocks(call, "out", call.out.count, "in", call.in.count, rank, size);
      } else if (call.varying) {
        expect_count(call, "out", call.out.count, call.counts[static_cast<std::size_t>(rank)]);
      }
      break;
    case Collective::kGather:
      if (is_root) {
        expect_blocks(call, "in", call.in.count, "out", call.out.count, rank, size);
      } else if (call.varying) {
        expect_count(call, "in", call.in.count, call.counts[static_cast<std::size_t>(rank)]);
      }
      break;
    case Collective::kAllGather:
      expect_blocks(call, "in", call.in.count, "out", call.out.count, rank, size);
      break;
    case Collective::kReduceScatter:
      expect_blocks(call, "out", call.out.count, "in", call.in.count, rank, size);
      break;
    case Collective::kAllToAll:
      if (call.varying) {
        expect_count(call, "in", call.in.count, total(call.counts));
        expect_count(call, "out", call.out.count, total(call.out_counts));
      } else {
        expect_count(call, "out", call.out.count, call.in.count);
        if (call.in.count % static_cast<std::size_t>(size) != 0) {
          fail(ErrorCode::kInvalidArgument,
               "all_to_all: {} elements do not make {} equal blocks; all_to_all_v takes unequal "
               "ones",
               call.in.count, size);
        }
      }
      break;
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kReceive:
      break;
  }
}

// Where `in` has to lie inside `out` (or the reverse) for the call to be in place.
bool is_in_place(const Call& call, int rank) {
  const std::byte* in = call.in.bytes;
  const std::byte* out = call.out.bytes;
  const auto before = [&](std::size_t equal_blocks_of) {
    std::size_t elements = equal_blocks_of * static_cast<std::size_t>(rank);
    if (call.varying) {
      elements = std::accumulate(call.counts.begin(), call.counts.begin() + rank, std::size_t{0});
    }
    return elements * size_of(call.in.dtype);
  };
  switch (call.kind) {
    case Collective::kAllGather:
    case Collective::kGather:
      return in == out + before(call.in.count);
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return out == in + before(call.out.count);
    default:
      return in == out;
  }
}

void validate_overlap(const Call& call, int rank) {
  if (call.in.count == 0 || call.out.count == 0) return;
  const std::less<const std::byte*> before;
  const std::byte* in_end = call.in.bytes + call.in.count * size_of(call.in.dtype);
  const std::byte* out_end = call.out.bytes + call.out.count * size_of(call.out.dtype);
  const bool apart = !before(call.in.bytes, out_end) || !before(call.out.bytes, in_end);
  if (!apart && !is_in_place(call, rank)) {
    fail(ErrorCode::kInvalidArgument,
         "{}: `in` and `out` overlap without being in place; use the same memory as call.h "
         "says, or memory apart",
         name(call.kind));
  }
}

Call make(Collective kind, ConstData in, Data out) {
  Call call;
  call.kind = kind;
  call.in = in;
  call.out = out;
  return call;
}

Call make_rooted(Collective kind, ConstData in, Data out, int root) {
  Call call = make(kind, in, out);
  call.root = root;
  return call;
}

Call make_varying(Call call, std::span<const std::size_t> counts) {
  call.varying = true;
  call.counts.assign(counts.begin(), counts.end());
  return call;
}

}  // namespace

std::string_view name(Collective collective) {
  return kCollectiveNames[static_cast<int>(collective)];
}

std::optional<Collective> collective_from_name(std::string_view wanted) {
  for (std::size_t i = 0; i < std::size(kCollectiveNames); ++i) {
    if (kCollectiveNames[i] == wanted) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

Call broadcast(Data data, int root) {
  return make_rooted(Collective::kBroadcast, data, data, root);
}
Call scatter(ConstData in, Data out, int root) {
  return make_rooted(Collective::kScatter, in, out, root);
}
Call gather(ConstData in, Data out, int root) {
  return make_rooted(Collective::kGather, in, out, root);
}
Call reduce(ConstData in, Data out, ReduceOp op, int root) {
  Call call = make_rooted(Collective::kReduce, in, out, root);
  call.op = op;
  return call;
}
Call all_reduce(ConstData in, Data out, ReduceOp op) {
  Call call = make(Collective::kAllReduce, in, out);
  call.op = op;
  return call;
}
Call all_reduce(Data data, ReduceOp op) { return all_reduce(data, data, op); }
Call all_gather(ConstData in, Data out) { return make(Collective::kAllGather, in, out); }
Call reduce_scatter(ConstData in, Data out, ReduceOp op) {
  Call call = make(Collective::kReduceScatter, in, out);
  call.op = op;
  return call;
}
Call all_to_all(ConstData in, Data out) { return make(Collective::kAllToAll, in, out); }
Call scatter_v(ConstData in, std::span<const std::size_t> counts, Data out, int root) {
  return make_varying(scatter(in, out, root), counts);
}
Call gather_v(ConstData in, Data out, std::span<const std::size_t> counts, int root) {
  return make_varying(gather(in, out, root), counts);
}
Call all_gather_v(ConstData in, Data out, std::span<const std::size_t> counts) {
  return make_varying(all_gather(in, out), counts);
}
Call all_to_all_v(ConstData in, std::span<const std::size_t> in_counts, Data out,
                  std::span<const std::size_t> out_counts) {
  Call call = make_varying(all_to_all(in, out), in_counts);
  call.out_counts.assign(out_counts.begin(), out_counts.end());
  return call;
}
Call barrier() { return {}; }
Call send(ConstData in, int peer) {
  Call call = make(Collective::kSend, in, {});
  call.peer = peer;
  return call;
}
Call receive(Data out, int peer) {
  Call call = make(Collective::kReceive, {}, out);
  call.peer = peer;
  return call;
}
Call copy(ConstData in, Data out) { return make(Collective::kCopy, in, out); }

DType dtype_of_call(const Call& call) {
  const bool by_output = call.kind == Collective::kScatter || call.kind == Collective::kReceive;
  return by_output ? call.out.dtype : call.in.dtype;
}

void validate(const Call& call, int rank, int size) {
  const auto expect_rank = [&](std::string_view what, int value) {
    if (value < 0 || value >= size) {
      fail(ErrorCode::kInvalidArgument, "{}: {} {} is not one of the ranks 0 to {}",
           name(call.kind), what, value, size - 1);
    }
  };
  if (has_root(call.kind)) expect_rank("root", call.root);
  if (call.kind == Collective::kSend || call.kind == Collective::kReceive) {
    expect_rank("peer", call.peer);
    if (call.peer == rank) {
      fail(ErrorCode::kInvalidArgument,
           "{}: rank {} cannot {} itself; copy() moves data inside a rank", name(call.kind), rank,
           call.kind == Collective::kSend ? "send to" : "receive from");
    }
  }
  if (call.in.count > 0 && call.out.count > 0 && call.in.dtype != call.out.dtype) {
    fail(ErrorCode::kInvalidArgument, "{}: `in` is {} but `out` is {}", name(call.kind),
         name(call.in.dtype), name(call.out.dtype));
  }
  if ((call.in.count > 0 && call.in.bytes == nullptr) ||
      (call.out.count > 0 && call.out.bytes == nullptr)) {
    fail(ErrorCode::kInvalidArgument, "{}: a null pointer was given for {} elements",
         name(call.kind), std::max(call.in.count, call.out.count));
  }
  if (reduces(call.kind) && call.op.kind == ReduceOp::kUser &&
      (call.op.user == nullptr || call.op.user->combine == nullptr)) {
    fail(ErrorCode::kInvalidArgument, "{}: the user-supplied reduction has no combine function",
         name(call.kind));
  }
  validate_counts(call, rank, size);
  validate_overlap(call, rank);
}

std::string describe(const Call& call) {
  if (call.kind == Collective::kBarrier) return "barrier";
  const bool by_output = call.kind == Collective::kScatter || call.kind == Collective::kReceive;
  const ConstData data = by_output ? ConstData(call.out) : call.in;
  std::string text = fmt::format("{}{} of {} {}", name(call.kind), call.varying ? "_v" : "",
                                 data.count, name(data.dtype));
  if (reduces(call.kind)) text += fmt::format(", {}", name(call.op));
  if (has_root(call.kind)) text += fmt::format(", root {}", call.root);
  if (call.kind == Collective::kSend) text += fmt::format(" to rank {}", call.peer);
  if (call.kind == Collective::kReceive) text += fmt::format(" from rank {}", call.peer);
  return text;
}

}  // namespace lockstep
