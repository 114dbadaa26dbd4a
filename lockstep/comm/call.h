// A Call describes one operation on a communicator completely: what is done, on which bytes, of
// which type. The builders below make Calls; Communicator::run() and start() execute them.
//
// Sizes are counted in elements, never in bytes. `in` and `out` are either the same memory (in
// place) or do not overlap at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/comm/reduce_op.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep {

enum class Collective : std::uint8_t {
  kBroadcast,
  kScatter,
  kGather,
  kReduce,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  // Point to point, and local:
  kSend,
  kReceive,
  kCopy,
};

inline constexpr std::size_t kCollectives = 12;

inline constexpr Collective kScheduledCollectives[] = {
    Collective::kBroadcast,     Collective::kScatter,   Collective::kGather,
    Collective::kReduce,        Collective::kAllReduce, Collective::kAllGather,
    Collective::kReduceScatter, Collective::kAllToAll};

std::string_view name(Collective collective);  // "all_reduce"
std::optional<Collective> collective_from_name(std::string_view name);
constexpr bool reduces(Collective c) {
  return c == Collective::kReduce || c == Collective::kAllReduce || c == Collective::kReduceScatter;
}
constexpr bool has_root(Collective c) {
  return c == Collective::kBroadcast || c == Collective::kScatter || c == Collective::kGather ||
         c == Collective::kReduce;
}

// A contiguous range of elements: a vector, an array or a span of float, Half, int32_t, ... A range
// of anything else, such as a vector<string>, is no argument of a collective: its constructor below
// is deleted, so that the compiler shows the line that lists the element types.
template <class R>
concept ElementRange =
    std::ranges::contiguous_range<R> && Element<std::remove_cv_t<std::ranges::range_value_t<R>>>;
template <class R>
concept OtherRange = std::ranges::contiguous_range<R> && !ElementRange<R>;

// A run of elements to read, and one to write. Made from an ElementRange, or from a pointer, a
// count and a DType known only at run time.
struct ConstData {
  const std::byte* bytes = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kF32;

  ConstData() = default;
  ConstData(const void* data, std::size_t count_, DType dtype_)
      : bytes(static_cast<const std::byte*>(data)), count(count_), dtype(dtype_) {}
  template <ElementRange R>
  ConstData(const R& range)
      : ConstData(std::ranges::data(range), std::ranges::size(range),
                  dtype_of<std::remove_cv_t<std::ranges::range_value_t<R>>>) {}
  template <OtherRange R>
  ConstData(const R&) = delete;  // float, double, Half, BFloat16, int8_t, uint8_t, int32_t, int64_t
};

struct Data {
  std::byte* bytes = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kF32;

  Data() = default;
  Data(void* data, std::size_t count_, DType dtype_)
      : bytes(static_cast<std::byte*>(data)), count(count_), dtype(dtype_) {}
  template <ElementRange R>
  requires(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
      Data(R&& range)
      : Data(std::ranges::data(range), std::ranges::size(range),
             dtype_of<std::ranges::range_value_t<R>>) {}
  template <OtherRange R>
  Data(R&&) = delete;  // float, double, Half, BFloat16, int8_t, uint8_t, int32_t, int64_t
  operator ConstData() const { return {bytes, count, dtype}; }
};

struct Call {
  Collective kind = Collective::kBarrier;
  ConstData in;          // empty where this rank gives nothing
  Data out;              // empty where this rank gets nothing
  ReduceOp op;           // of reductions
  int root = 0;          // of rooted collectives
  int peer = -1;         // of send and receive
  bool varying = false;  // a v-variant: `counts` (and `out_counts`) are the sizes of blocks
  std::vector<std::size_t> counts;      // scatter_v, gather_v, all_gather_v: the same on all ranks;
                                        // all_to_all_v: what this rank sends to each
  std::vector<std::size_t> out_counts;  // all_to_all_v: what this rank gets from each
  std::string algorithm;                // empty: selected by the communicator

  Call with(std::string_view forced_algorithm) && {
    algorithm = forced_algorithm;
    return std::move(*this);
  }
};

// out = in of rank root. Only `data` where in place. N ranks, block = the data of one rank:
//   broadcast       every rank's data becomes root's
//   scatter         root's `in` has N blocks; block r becomes rank r's `out`
//   gather          rank r's `in` becomes block r of root's `out`
//   reduce          root's `out` = all ranks' `in` combined
//   all_reduce      every rank's `out` = all ranks' `in` combined
//   all_gather      rank r's `in` becomes block r of every rank's `out`
//   reduce_scatter  `in` has N blocks; rank r's `out` = all ranks' block r combined
//   all_to_all      rank i's block j becomes rank j's block i
// The v-variants have blocks of given sizes, one after another without gaps.
//
// In place: all_gather, gather at root: `in` is block rank() of `out`; reduce_scatter, scatter at
// root: `out` is block rank() of `in`; all others: `in` and `out` are the same.
Call broadcast(Data data, int root);
Call scatter(ConstData in, Data out, int root);
Call gather(ConstData in, Data out, int root);
Call reduce(ConstData in, Data out, ReduceOp op, int root);
Call all_reduce(ConstData in, Data out, ReduceOp op = ReduceOp::kSum);
Call all_reduce(Data data, ReduceOp op = ReduceOp::kSum);
Call all_gather(ConstData in, Data out);
Call reduce_scatter(ConstData in, Data out, ReduceOp op = ReduceOp::kSum);
Call all_to_all(ConstData in, Data out);
Call scatter_v(ConstData in, std::span<const std::size_t> counts, Data out, int root);
Call gather_v(ConstData in, Data out, std::span<const std::size_t> counts, int root);
Call all_gather_v(ConstData in, Data out, std::span<const std::size_t> counts);
Call all_to_all_v(ConstData in, std::span<const std::size_t> in_counts, Data out,
                  std::span<const std::size_t> out_counts);
Call barrier();
Call send(ConstData in, int peer);
Call receive(Data out, int peer);
Call copy(ConstData in, Data out);  // inside this rank

// The element type of the call.
DType dtype_of_call(const Call& call);

// Throws Error(kInvalidArgument) unless the call is valid for `rank` of `size` ranks: roots and
// peers in range, matching types and counts, no partial overlap.
void validate(const Call& call, int rank, int size);

// "all_reduce of 1024 f32, sum": the text of a call in errors and in the flight recorder.
std::string describe(const Call& call);

}  // namespace lockstep
