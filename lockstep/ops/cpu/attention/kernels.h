// The arguments of attention's kernels: plain pointers and numbers. Internal to attention.
//
//   tile    up to kAttentionBlock queries of one head, the unit that meets a block of keys
//   block   up to kAttentionBlock keys of one key head
//   strip   several consecutive tiles of one head: while the strip is worked on, a
//           block of keys is widened to f32 once and then meets all of its tiles
//
// Matrices in scratch memory are f32. Their extents are rounded up to kAttentionPadding, and what
// is there only by rounding is zero or meets zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/simd/kernel_table.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {

inline constexpr std::size_t kAttentionBlock = 64;
inline constexpr std::size_t kAttentionPadding = 16;

// The heads of the rows of all sequences: the first element of head 0 in row 0, and how many
// elements a row has.
struct HeadRows {
  std::byte* data = nullptr;
  std::size_t width = 0;
};

struct AttentionDropout {
  bool given = false;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t first = 0;
  std::uint32_t limit = 0;  // a probability stays where its random word is below
  float factor = 1;         // and is multiplied by this
};

struct AttentionCall {
  DType dtype = DType::kF32;
  std::size_t queries = 0;  // per sequence
  std::size_t keys = 0;     // per sequence
  std::size_t heads = 0;
  std::size_t group = 1;  // heads that use one key head
  std::size_t head_size = 0;
  bool causal = false;
  std::size_t window = 0;  // 0: none
  float scale = 1;
  float softcap = 0;  // 0: none
  // A bias by distance: [heads, distances], and its gradient of every tile of queries by itself,
  // [batch, heads, tiles, distances]. The latter is overwritten.
  std::size_t distances = 0;  // 0: none
  const float* bias = nullptr;
  float* dbias_of_tiles = nullptr;  // backward
  HeadRows q, k, v, out;
  const std::uint8_t* key_mask = nullptr;
  AttentionDropout dropout;
  float* log_sum = nullptr;
  float* probabilities = nullptr;  // forward
  HeadRows dout, dq, dk, dv;       // backward
};

// Part `part` of `parts` of items whose cost rises or falls: items are assigned back and forth, to
// balance the load.
struct Dealt {
  std::size_t parts = 1;
  std::size_t part = 0;
  [[gnu::always_inline]] bool has(std::size_t index) const {
    const std::size_t place = index % parts;
    return (index / parts % 2 == 0 ? place : parts - 1 - place) == part;
  }
};

// Queries of one head of one sequence.
struct QueryStrip {
  std::size_t sequence = 0;
  std::size_t head = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};

// Which gradients of one key head of one sequence to compute: of those keys and values whose block
// is among `key_blocks`, and of those queries whose strip is among `strips`.
//
// Every gradient is summed up in the same order whatever the parts are. Keys' and queries' are
// either both asked for, of everything, or one of them, of a part.
struct BackwardPart {
  std::size_t sequence = 0;
  std::size_t key_head = 0;
  bool of_keys = true;
  bool of_queries = true;
  Dealt key_blocks;
  Dealt strips;
};

// Scratch memory of one thread. [tiles] stands for those of a strip, `head` for the head size.
struct ForwardWorkspace {
  std::size_t tiles = 0;
  std::size_t head = 0;                 // rounded up
  float* queries_transposed = nullptr;  // [tiles, head, block], scaled
  float* sums = nullptr;                // [tiles, block, head]: of values, not yet divided
  float* largest = nullptr;             // [tiles, block]: score so far
  float* totals = nullptr;              // [tiles, block]: of exp(score - largest)
  float* rescale = nullptr;  // [block]: what turns former sums into those of a new largest
  float* keys = nullptr;     // [block, head]
  float* values = nullptr;   // [block, head]
  float* scores = nullptr;   // [block of keys, block of queries]
  float* kept = nullptr;     // the same: what dropout multiplies by
  float* packed = nullptr;   // [2, block, block]: for tiles
};

// For the one query of a sequence.
struct RowWorkspace {
  float* query = nullptr;   // [head], scaled
  float* scores = nullptr;  // [keys]
};

struct BackwardWorkspace {
  std::size_t tiles = 0;
  std::size_t head = 0;
  float* queries = nullptr;             // [tiles, block, head], scaled
  float* queries_transposed = nullptr;  // [tiles, head, block]
  float* dout = nullptr;                // [tiles, block, head]
  float* dout_transposed = nullptr;     // [tiles, head, block]
  float* dqueries = nullptr;            // [tiles, block, head]
  float* log_sums = nullptr;            // [tiles, block]
  float* expected = nullptr;            // [tiles, block]: sum of p dp over the keys
  float* keys = nullptr;                // [block, head]
  float* values = nullptr;              // [block, head]
  float* scores = nullptr;              // [block of keys, block of queries], then probabilities
  float* dscores = nullptr;             // the same
  float* kept = nullptr;                // the same
  float* packed = nullptr;              // [2, block, block]: for tiles
  float* dkeys = nullptr;               // [keys, head]
  float* dvalues = nullptr;             // [keys, head]
};

struct AttentionKernels {
  void (*forward)(const AttentionCall& call, const QueryStrip& strip,
                  const ForwardWorkspace& workspace);
  void (*backward)(const AttentionCall& call, const BackwardPart& part,
                   const BackwardWorkspace& workspace);
  // Forward of one head of a sequence that has one query, without dropout and probabilities.
  void (*row)(const AttentionCall& call, std::size_t sequence, std::size_t head,
              const RowWorkspace& workspace);
};

// Whether attention can be done in tiles (gemm/tiles/tiles.h), where there are some.
inline bool fits_squares(const AttentionCall& call) {
  return call.dtype == DType::kBF16 && call.head_size % 32 == 0;
}

LOCKSTEP_KERNEL_TABLE_AMX(AttentionKernels, attention_kernels)

// Those of AMX in plain loops.
extern const AttentionKernels kAttentionEmulated;

}  // namespace lockstep::cpu
