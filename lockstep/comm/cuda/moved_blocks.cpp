#include "lockstep/comm/cuda/moved_blocks.h"

#include <algorithm>

namespace lockstep::cuda {

MovedBlocks::MovedBlocks(const Call& call, int rank, int size)
    : in_first(static_cast<std::size_t>(size)),
      in_bytes(in_first),
      out_first(in_first),
      out_bytes(in_first) {
  const auto ranks = static_cast<std::size_t>(size);
  const auto me = static_cast<std::size_t>(rank);
  const auto root = static_cast<std::size_t>(call.root);
  const std::size_t element = size_of(dtype_of_call(call));
  const auto lay_out = [&](auto& first, auto& bytes, const std::vector<std::size_t>& counts,
                           std::size_t equal) {
    std::size_t at = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      first[r] = at;
      bytes[r] = (call.varying ? counts[r] : equal) * element;
      at += bytes[r];
    }
  };
  switch (call.kind) {
    case Collective::kBroadcast:
      are_shared = true;
      std::ranges::fill(in_bytes, rank == call.root ? bytes_of(call.in) : 0);
      if (rank != call.root) out_bytes[root] = bytes_of(call.out);
      break;
    case Collective::kGather:
    case Collective::kAllGather:
      are_shared = true;
      std::ranges::fill(in_bytes, bytes_of(call.in));
      if (call.kind == Collective::kAllGather || rank == call.root) {
        lay_out(out_first, out_bytes, call.counts, call.in.count);
      }
      break;
    case Collective::kScatter:
      if (rank == call.root) lay_out(in_first, in_bytes, call.counts, call.out.count);
      out_bytes[root] = bytes_of(call.out);
      break;
    default:  // all_to_all
      lay_out(in_first, in_bytes, call.counts, call.in.count / ranks);
      lay_out(out_first, out_bytes, call.out_counts, call.in.count / ranks);
  }
  if (are_shared) in_bytes[me] = in_bytes[0];
}

std::size_t MovedBlocks::most() const {
  return std::max(*std::ranges::max_element(in_bytes), *std::ranges::max_element(out_bytes));
}

}  // namespace lockstep::cuda
