#include "lockstep/comm/nccl/traffic.h"

#include "lockstep/comm/cuda/moved_blocks.h"
#include "lockstep/comm/least_bytes.h"

namespace lockstep::nccl {
namespace {

// Of a reduction whose ranks send each other a part of the vector.
std::uint64_t across_by_parts(const Call& call, int rank, std::span<const int> nodes) {
  const auto node_of = [&](int one) { return nodes[static_cast<std::size_t>(one)]; };
  std::uint64_t far = 0;  // ranks on other nodes
  for (const int node : nodes) far += node == node_of(rank) ? 0 : 1;
  const std::uint64_t part = cuda::bytes_of(call.in) / nodes.size();
  std::uint64_t times = far;  // of a part, to the rank that combines it
  if (call.kind == Collective::kAllReduce) times += far;
  if (call.kind == Collective::kReduce && node_of(call.root) != node_of(rank)) ++times;
  return times * part;
}

}  // namespace

std::uint64_t bytes_across_of_ring(const Call& call, int rank, std::span<const int> nodes) {
  const auto me = static_cast<std::size_t>(rank);
  if (nodes[me] == nodes[(me + 1) % nodes.size()]) return 0;
  return least_bytes_sent(call, rank, static_cast<int>(nodes.size()));
}

std::uint64_t bytes_across_of_exchange(const Call& call, int rank, std::span<const int> nodes) {
  if (reduces(call.kind)) return across_by_parts(call, rank, nodes);
  const cuda::MovedBlocks blocks(call, rank, static_cast<int>(nodes.size()));
  std::uint64_t bytes = 0;
  for (std::size_t peer = 0; peer < nodes.size(); ++peer) {
    const bool gets = call.kind != Collective::kGather || static_cast<int>(peer) == call.root;
    const bool is_far = nodes[peer] != nodes[static_cast<std::size_t>(rank)];
    if (gets && is_far) bytes += blocks.in_bytes[peer];
  }
  return bytes;
}

}  // namespace lockstep::nccl
