// The forward of attention on Hopper.
//
// A block takes tiles of queries of one head, 64 queries for each of its groups (warpgroups of 128
// computing threads). It runs over the keys that these attend to in blocks of kKeys, from the last
// to the first. One more warp, the loader, keeps a ring of blocks of keys and values filled and
// runs ahead into the next tile. With S = q k^T of a block of keys, and P = exp(S - largest so
// far), a group issues two products together: S of the next block, and out += P v of the current
// one. It computes P from the new S while the second product still runs. Groups take turns in
// issuing products, so that one computes exponentials while the products of another keep the tensor
// cores busy.
//
// Only blocks of keys on the diagonal or at the end of the sequence are masked; those above the
// diagonal are not loaded. The order of tiles keeps keys and values of a few heads in the L2 cache;
// among these heads the tiles with most keys come first. Causal tiles differ in length, so a block
// draws its next tile from a counter when it has loaded the last one. With equal counts of tiles up
// to a fifth of the chip would idle. The result of a tile does not depend on the block that draws
// it.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "lockstep/ops/cuda/attention/hopper_ptx.cuh"
#include "lockstep/ops/cuda/attention/hopper_registers.cuh"
#include "lockstep/ops/cuda/attention/hopper_wgmma.cuh"
#include "lockstep/ops/cuda/device/overlap.cuh"

namespace lockstep::cuda::hopper {

struct ForwardArgs {
  CUtensorMap q, k, v, out;
  float* log_sum;
  unsigned* next_tile;  // 0 between launches
  int queries, keys;
  int offset;  // keys - queries
  int causal;
  int heads, heads_per_kv;
  int batch_heads;
  int query_tiles;  // per head
  int section;      // (sequence, head)s whose keys stay in the cache together
  int tiles;
  float scale;
  float scale_log2;  // scale / ln 2
};

// kTurns: groups issue products in turns, each equally many. Without it a group skips blocks of
// keys that only other groups attend to.
template <class T_, int kHeadSize_, int kKeys_, int kGroups_, int kStages_, int kBlocksPerSm_,
          bool kTurns_>
struct ForwardConfig {
  using T = T_;
  static constexpr int kHeadSize = kHeadSize_;
  static constexpr int kKeys = kKeys_;
  static constexpr int kGroups = kGroups_;
  static constexpr int kStages = kStages_;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;
  static constexpr bool kTurns = kTurns_ && kGroups > 1;

  static constexpr int kQueries = 64 * kGroups;
  static constexpr int kColumnTiles = kHeadSize / 64;
  static constexpr int kThreads = 128 * (kGroups + 1);
  // The loader is a whole warpgroup, although one thread is enough: it gives its registers to the
  // groups.
  static constexpr int kRegisters = 65536 / (kThreads * kBlocksPerSm) / 8 * 8;
  static constexpr int kLoaderRegisters = 24;
  static constexpr int kGroupRegisters =
      (kRegisters * (kGroups + 1) - kLoaderRegisters) / kGroups / 8 * 8;

  // Bytes in shared memory, and where parts begin.
  static constexpr int kQueryBytes = kQueries * kHeadSize * 2;
  static constexpr int kKeyBytes = kKeys * kHeadSize * 2;
  static constexpr int kQ = 0;
  static constexpr int kOut = kQ + kQueryBytes;
  static constexpr int kK = kOut + kQueryBytes;
  static constexpr int kV = kK + kStages * kKeyBytes;
  static constexpr int kBarriers = kV + kStages * kKeyBytes;
  static constexpr int kQFull = kBarriers;
  static constexpr int kQEmpty = kQFull + 8;
  static constexpr int kKFull = kQEmpty + 8;
  static constexpr int kKEmpty = kKFull + 8 * kStages;
  static constexpr int kVFull = kKEmpty + 8 * kStages;
  static constexpr int kVEmpty = kVFull + 8 * kStages;
  static constexpr int kFresh = kVEmpty + 8 * kStages;
  static constexpr int kTile = kFresh + 8;  // the drawn tile
  static constexpr int kEnd = kTile + 8;
  static constexpr int kSharedBytes = kEnd + 1024;  // and padding for alignment
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Named barriers; 0 is __syncthreads().
constexpr int kOutBarrier = 1;   // + group
constexpr int kTurnBarrier = 5;  // + group

// Exponentials stay relative to an older largest score until it has grown by more than this power
// of two. Until then the sums need no rescaling.
constexpr float kUnscaledGrowth = 8;

template <class C>
struct ForwardTile {
  int first_query, head, sequence, blocks;

  __device__ ForwardTile(const ForwardArgs& args, int tile) {
    const int tiles_per_section = args.section * args.query_tiles;
    const int section = tile / tiles_per_section;
    const int first = section * args.section;
    const int size = min(args.section, args.batch_heads - first);
    const int place = tile - section * tiles_per_section;
    const int query_tile = args.query_tiles - 1 - place / size;
    const int batch_head = first + place % size;
    first_query = query_tile * C::kQueries;
    sequence = batch_head / args.heads;
    head = batch_head - sequence * args.heads;
    blocks = blocks_seen(args, first_query + C::kQueries);
  }
  // The number of blocks of keys that queries before `end` attend to; at least one.
  __device__ static int blocks_seen(const ForwardArgs& args, int end) {
    const int seen = args.causal ? min(args.keys, min(end, args.queries) + args.offset) : args.keys;
    return max(1, (seen + C::kKeys - 1) / C::kKeys);
  }
};

template <class C>
__device__ __forceinline__ void load_tiles(const ForwardArgs& args, std::uint32_t shared) {
  prefetch_map(args.q);
  prefetch_map(args.k);
  prefetch_map(args.v);
  Ring<C::kStages> ring;
  std::uint32_t q_parity = 1;
  int index = blockIdx.x;
  for (; index < args.tiles; q_parity ^= 1) {
    // Draws the next tile here, ahead of its use after the loop: the atomic takes as long as a
    // load.
    const unsigned drawn = atomicAdd(args.next_tile, 1u);
    const ForwardTile<C> tile(args, index);
    const int kv_head = tile.head / args.heads_per_kv;
    for (int block = tile.blocks - 1; block >= 0; --block, ring.advance()) {
      const auto load = [&](const CUtensorMap& map, int place, int full, int empty) {
        const std::uint32_t barrier = shared + full + 8 * ring.stage();
        wait(shared + empty + 8 * ring.stage(), ring.parity() ^ 1);
        arrive_expecting(barrier, C::kKeyBytes);
#pragma unroll
        for (int i = 0; i < C::kColumnTiles; ++i) {
          load_box(shared + place + ring.stage() * C::kKeyBytes + i * C::kKeys * 128, map, barrier,
                   64 * i, kv_head, block * C::kKeys, tile.sequence);
        }
      };
      load(args.k, C::kK, C::kKFull, C::kKEmpty);
      if (block == tile.blocks - 1) {
        wait(shared + C::kQEmpty, q_parity);
        store_word(shared + C::kTile, index);
        arrive_expecting(shared + C::kQFull, C::kQueryBytes);
#pragma unroll
        for (int i = 0; i < C::kColumnTiles; ++i) {
          load_box(shared + C::kQ + i * C::kQueries * 128, args.q, shared + C::kQFull, 64 * i,
                   tile.head, tile.first_query, tile.sequence);
        }
      }
      load(args.v, C::kV, C::kVFull, C::kVEmpty);
    }
    // There are as many draws as tiles, so the last draw resets the counter for the next launch.
    if (drawn == static_cast<unsigned>(args.tiles) - 1) *args.next_tile = 0;
    index = static_cast<int>(drawn + gridDim.x);
  }
  wait(shared + C::kQEmpty, q_parity);
  store_word(shared + C::kTile, index);
  arrive(shared + C::kQFull);
}

// ---- softmax, in the registers of a product of 64 rows: a thread has parts of two of them

// Masks the columns from `limits` on, which count from the thread's first column.
template <int kCount>
__device__ __forceinline__ void mask_columns(float (&scores)[kCount], const int (&limits)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i / 4 * 8 + i % 2 >= limits[i / 2 % 2]) scores[i] = -INFINITY;
  }
}

// Replaces scores by exponentials relative to `largest`, the largest score so far or an older one
// that is smaller by at most kUnscaledGrowth. `factors` rescales sums that are relative to the
// previous `largest`.
template <int kCount>
__device__ __forceinline__ void exponentiate(float (&scores)[kCount], float (&largest)[2],
                                             float (&sums)[2], float (&factors)[2],
                                             float scale_log2) {
  float base[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float now = largest[row];
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      now = fmaxf(now, fmaxf(scores[4 * i + 2 * row], scores[4 * i + 2 * row + 1]));
    }
    now = fmaxf(now, __shfl_xor_sync(0xffffffff, now, 1));
    now = fmaxf(now, __shfl_xor_sync(0xffffffff, now, 2));
    if ((now - largest[row]) * scale_log2 <= kUnscaledGrowth) now = largest[row];
    const float finite = now == -INFINITY ? 0 : now;
    base[row] = finite * scale_log2;
    factors[row] = exp2_approximate((largest[row] - finite) * scale_log2);
    largest[row] = now;
    sums[row] *= factors[row];
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    scores[i] = exp2_approximate(fmaf(scores[i], scale_log2, -base[i / 2 % 2]));
    sums[i / 2 % 2] += scores[i];
  }
}

template <class C>
__device__ __forceinline__ void attend(const ForwardArgs& args, std::uint32_t shared, int warp) {
  using T = typename C::T;
  const int group = warp / 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp % 4 * 16 + lane / 4;
  const bool leads_warp = lane == 0;
  const bool leads_group = threadIdx.x % 128 == 0;
  const Operand q = operand(shared + C::kQ + group * 8192);
  const Operand k = operand(shared + C::kK);
  const Operand v = operand(shared + C::kV, C::kKeys * 128);
  const std::uint32_t staged = shared + C::kOut + group * 64 * C::kHeadSize * 2;

  Ring<C::kStages> keys, values;
  std::uint32_t q_parity = 0;
  float scores[C::kKeys / 2];
  std::uint32_t weights[C::kKeys / 4];
  float out[C::kHeadSize / 2];

  if constexpr (C::kTurns) {
    if (group == C::kGroups - 1) arrive_threads(kTurnBarrier, 256);
  }
  for (;; q_parity ^= 1) {
    wait(shared + C::kQFull, q_parity);
    const int index = __shfl_sync(0xffffffff, load_word(shared + C::kTile), 0);
    if (index >= args.tiles) break;
    const ForwardTile<C> tile(args, index);
    const int first_query = tile.first_query + 64 * group;
    int block = tile.blocks - 1;
    if constexpr (!C::kTurns) {
      for (const int own = tile.blocks_seen(args, first_query + 64); block >= own; --block) {
        wait(shared + C::kKFull + 8 * keys.stage(), keys.parity());
        wait(shared + C::kVFull + 8 * values.stage(), values.parity());
        if (leads_warp) {
          arrive(shared + C::kKEmpty + 8 * keys.stage());
          arrive(shared + C::kVEmpty + 8 * values.stage());
        }
        keys.advance();
        values.advance();
      }
    }

    float largest[2] = {-INFINITY, -INFINITY};
    float sums[2] = {0, 0};
    float factors[2];
    const auto issue_scores = [&] {
      multiply_rows<T, C::kKeys, C::kHeadSize>(
          scores, q, C::kQueries * 128, further(k, keys.stage() * C::kKeyBytes), C::kKeys * 128);
      end_products();
    };
    const auto issue_out = [&](int add) {
      multiply_fragments<T, C::kHeadSize, C::kKeys>(out, weights,
                                                    further(v, values.stage() * C::kKeyBytes), add);
      end_products();
    };
    const auto weigh = [&] {
      const int first_key = block * C::kKeys;
      if (first_key + C::kKeys > args.keys ||
          (args.causal && first_key + C::kKeys - 1 > first_query + args.offset)) {
        int limits[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int seen = args.causal ? first_query + row + 8 * i + args.offset + 1 : args.keys;
          limits[i] = min(args.keys, seen) - first_key - lane % 4 * 2;
        }
        mask_columns(scores, limits);
      }
      exponentiate(scores, largest, sums, factors, args.scale_log2);
    };

    wait(shared + C::kKFull + 8 * keys.stage(), keys.parity());
    pin(scores);
    start_products();
    issue_scores();
    wait_for_products<0>();
    pin(scores);
    if (leads_warp) arrive(shared + C::kKEmpty + 8 * keys.stage());
    keys.advance();
    weigh();
    round_to<T>(weights, scores);

    int add = 0;
    for (--block; block >= 0; --block) {
      wait(shared + C::kKFull + 8 * keys.stage(), keys.parity());
      if constexpr (C::kTurns) sync_threads(kTurnBarrier + group, 256);
      pin(scores);
      pin(weights);
      pin(out);
      start_products();
      issue_scores();
      wait(shared + C::kVFull + 8 * values.stage(), values.parity());
      start_products();
      issue_out(add);
      add = 1;
      if constexpr (C::kTurns) {
        arrive_threads(kTurnBarrier + (group == C::kGroups - 1 ? 0 : group + 1), 256);
      }
      wait_for_products<1>();
      pin(scores);
      if (leads_warp) arrive(shared + C::kKEmpty + 8 * keys.stage());
      keys.advance();
      weigh();
      pin(scores);
      keep_order(shared + C::kFresh);
      wait_for_products<0>();
      pin(out);
      pin(weights);
      if (leads_warp) arrive(shared + C::kVEmpty + 8 * values.stage());
      values.advance();
      if (__any_sync(0xffffffff, factors[0] != 1 || factors[1] != 1)) {
#pragma unroll
        for (int i = 0; i < C::kHeadSize / 2; ++i) out[i] *= factors[i / 2 % 2];
      }
      round_to<T>(weights, scores);
    }
    if (leads_warp) arrive(shared + C::kQEmpty);

    wait(shared + C::kVFull + 8 * values.stage(), values.parity());
    pin(weights);
    pin(out);
    start_products();
    issue_out(add);
    // While it runs, sums the rows, whose columns four lanes hold.
    float* const log_sum =
        args.log_sum +
        (static_cast<std::int64_t>(tile.sequence) * args.heads + tile.head) * args.queries;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[i] += __shfl_xor_sync(0xffffffff, sums[i], 1);
      sums[i] += __shfl_xor_sync(0xffffffff, sums[i], 2);
      const int query = first_query + row + 8 * i;
      if (lane % 4 == 0 && query < args.queries) {
        log_sum[query] = sums[i] > 0 ? largest[i] * args.scale + logf(sums[i]) : -INFINITY;
      }
      factors[i] = sums[i] > 0 ? 1 / sums[i] : 0;
    }
    // Waits until the store of the last tile has read its memory.
    if (leads_group) wait_for_reads();
    sync_threads(kOutBarrier + group, 128);
    wait_for_products<0>();
    pin(out);
    if (leads_warp) arrive(shared + C::kVEmpty + 8 * values.stage());
    values.advance();

    store_rows<T>(staged, 8192, out, factors);
    fence_shared_for_copies();
    sync_threads(kOutBarrier + group, 128);
    if (leads_group && first_query < args.queries) {
#pragma unroll
      for (int i = 0; i < C::kColumnTiles; ++i) {
        store_box(args.out, staged + i * 8192, 64 * i, tile.head, first_query, tile.sequence);
      }
      end_stores();
    }
  }
  if (leads_group) wait_for_reads();
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocksPerSm)
    hopper_attention(const __grid_constant__ ForwardArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ std::byte memory[];
  const std::uint32_t shared = (shared_address(memory) + 1023) & ~1023u;
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  start_next();
  if (threadIdx.x == 0) {
    init_barrier(shared + C::kFresh, 1);
    init_barrier(shared + C::kQFull, 1);
    init_barrier(shared + C::kQEmpty, 4 * C::kGroups);
    for (int i = 0; i < C::kStages; ++i) {
      init_barrier(shared + C::kKFull + 8 * i, 1);
      init_barrier(shared + C::kKEmpty + 8 * i, 4 * C::kGroups);
      init_barrier(shared + C::kVFull + 8 * i, 1);
      init_barrier(shared + C::kVEmpty + 8 * i, 4 * C::kGroups);
    }
    publish_barriers();
  }
  __syncthreads();
  wait_for_previous();
  if (warp >= 4 * C::kGroups) {
    shrink_registers<C::kLoaderRegisters>();
    if (threadIdx.x == 128 * C::kGroups) load_tiles<C>(args, shared);
  } else {
    grow_registers<C::kGroupRegisters>();
    attend<C>(args, shared, warp);
  }
#endif
}

}  // namespace lockstep::cuda::hopper
