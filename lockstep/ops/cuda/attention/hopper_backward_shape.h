// How the backward of attention on Hopper splits its work: the pairs of blocks of queries and keys,
// and the layout of the workspace. Host and kernels use it.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define LOCKSTEP_BOTH __host__ __device__ __forceinline__
#else
#define LOCKSTEP_BOTH inline
#endif

namespace lockstep::cuda::hopper {

constexpr int kBackwardKeys = 128;  // in a block of keys
// Queries in a block of queries. A step of an item takes one such block.
constexpr int backward_queries(int head_size) { return head_size == 64 ? 128 : 64; }

struct BackwardShape {
  int batch, queries, keys;
  int offset;  // keys - queries
  int causal;
  int heads, kv_heads, heads_per_kv;
  int block_queries;
  int query_blocks, key_blocks;  // per head
  int padded_queries;            // a multiple of 128

  // The last block of keys that queries of the block attend to; -1 if there is none.
  LOCKSTEP_BOTH int last_key_block(int query_block) const {
    int seen = keys;
    if (causal != 0) {
      const int end = (query_block + 1) * block_queries;
      seen = (end < queries ? end : queries) + offset;
      if (seen > keys) seen = keys;
    }
    return seen <= 0 ? -1 : (seen - 1) / kBackwardKeys;
  }
  // The first block of queries that attends to some of the keys.
  LOCKSTEP_BOTH int first_query_block(int key_block) const {
    const int first = key_block * kBackwardKeys - offset;
    return causal != 0 && first > 0 ? first / block_queries : 0;
  }
};

// Parts of the workspace, in bytes from its start.
struct BackwardWorkspace {
  std::size_t dq;        // f32, 64 x 64 at a time in the order of a product's registers
  std::size_t log_sums;  // [batch, heads, padded_queries] f32, of base 2
  std::size_t deltas;    // likewise: sums of dout * out
  std::size_t counters;  // u32: items taken, then how many blocks of keys added to a block of dq
  std::size_t counter_count;
  std::size_t bytes;
};

inline BackwardWorkspace lay_out(const BackwardShape& shape, int head_size) {
  const auto round = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  const auto heads = static_cast<std::size_t>(shape.batch) * static_cast<std::size_t>(shape.heads);
  const auto blocks = heads * static_cast<std::size_t>(shape.query_blocks);
  const auto rows = heads * static_cast<std::size_t>(shape.padded_queries);
  BackwardWorkspace workspace{};
  workspace.dq = 0;
  workspace.log_sums =
      round(blocks * static_cast<std::size_t>(shape.block_queries * head_size) * sizeof(float));
  workspace.deltas = workspace.log_sums + round(rows * sizeof(float));
  workspace.counters = workspace.deltas + round(rows * sizeof(float));
  workspace.counter_count = blocks + 1;
  workspace.bytes = workspace.counters + round(workspace.counter_count * sizeof(std::uint32_t));
  return workspace;
}

}  // namespace lockstep::cuda::hopper

#undef LOCKSTEP_BOTH
