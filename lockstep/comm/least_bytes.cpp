#include "lockstep/comm/least_bytes.h"

#include <numeric>

#include "lockstep/comm/fingerprint.h"

namespace lockstep {
namespace {

std::uint64_t least_of_varying(const Call& call, std::size_t rank, std::uint64_t others) {
  const std::uint64_t own = call.counts[rank];
  const auto all = std::accumulate(call.counts.begin(), call.counts.end(), std::uint64_t{0});
  const bool is_root = static_cast<int>(rank) == call.root;
  switch (call.kind) {
    case Collective::kAllGather:
      return others * own;
    case Collective::kGather:
      return is_root ? 0 : own;
    case Collective::kScatter:
      return is_root ? all - own : 0;
    default:
      return all - own;
  }
}

std::uint64_t least_of_even(const Call& call, std::uint64_t count, std::uint64_t others) {
  const std::uint64_t element = size_of(dtype_of_call(call));
  const std::uint64_t ranks = others + 1;
  switch (call.kind) {
    case Collective::kAllReduce:
      return 2 * others * count * element / ranks;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kScatter:
    case Collective::kGather:
      return others * count * element / ranks;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return others * count * element;
    case Collective::kAllToAll:
      return count / ranks * others * element;
    case Collective::kSend:
      return count * element;
    default:
      return 0;
  }
}

}  // namespace

std::uint64_t least_bytes_sent(const Call& call, int rank, int ranks) {
  return least_bytes_sent(call, fingerprint_of(call, 0), rank, ranks);
}

std::uint64_t least_bytes_sent(const Call& call, const Fingerprint& fingerprint, int rank,
                               int ranks) {
  const auto others = static_cast<std::uint64_t>(ranks - 1);
  if (!call.varying) return least_of_even(call, fingerprint.count, others);
  return least_of_varying(call, static_cast<std::size_t>(rank), others) *
         size_of(dtype_of_call(call));
}

}  // namespace lockstep
