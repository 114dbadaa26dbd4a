// The backward of attention on Hopper.
//
// An item is a block of 128 keys of one key head. Two groups (warpgroups) of 64 keys each run over
// the blocks of queries that attend to it, of all query heads that use the key head. P are the
// probabilities, recomputed from the log-sums, and delta is the sum of dout * out by row. A step
// computes
//
//   S^T = k q^T, dP^T = v dout^T       [64 keys, queries], in registers
//   P^T = exp(S^T - log_sum), dS^T = P^T (dP^T - delta)
//   dv += P^T dout, dk += dS^T q       from registers, over the whole item
//   dq of the step = dS k              over both groups' keys, through shared memory
//
// The scores of the next step are issued before the current one is done, so that the tensor cores
// have work while the groups round and store. One more warp loads blocks of queries ahead. Another
// accumulates dq in f32 in device memory with the copy engine.
//
// The sums of dq do not depend on timing. For every block of queries the blocks of keys add in one
// order, from the last one that it attends to down to the first; a counter holds the next one. A
// block of keys starts with the first queries that attend to it, so block j reaches a block of
// queries one step after block j + 1. Items are handed out in that order, so an item rarely waits.
// An item waits only for items that were handed out before it, so all items end however few blocks
// run at a time.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "lockstep/ops/cuda/attention/hopper_backward_shape.h"
#include "lockstep/ops/cuda/attention/hopper_ptx.cuh"
#include "lockstep/ops/cuda/attention/hopper_registers.cuh"
#include "lockstep/ops/cuda/attention/hopper_wgmma.cuh"
#include "lockstep/ops/cuda/device/overlap.cuh"

namespace lockstep::cuda::hopper {

struct BackwardArgs {
  CUtensorMap q, k, v, dout, dk, dv;
  BackwardShape shape;
  int items;
  float scale;
  float scale_log2;  // scale / ln 2
  float* dq;
  const float* log_sums;
  const float* deltas;
  std::uint32_t* next_item;
  std::uint32_t* turns;
};

template <class T_, int kHeadSize_>
struct BackwardConfig {
  using T = T_;
  static constexpr int kHeadSize = kHeadSize_;
  static constexpr int kQueries = backward_queries(kHeadSize);
  static constexpr int kKeys = kBackwardKeys;
  static constexpr int kStages = 2;
  static constexpr int kColumnTiles = kHeadSize / 64;
  static constexpr int kThreads = 384;
  static constexpr int kGroupRegisters = kHeadSize == 64 ? 232 : 240;
  static constexpr int kLoaderRegisters = kHeadSize == 64 ? 40 : 24;

  // Bytes in shared memory, and where parts begin.
  static constexpr int kKeyBytes = kKeys * kHeadSize * 2;
  static constexpr int kQueryBytes = kQueries * kHeadSize * 2;
  static constexpr int kStatisticBytes = kQueries * 4;
  static constexpr int kDsBytes = kQueries * kKeys * 2;
  static constexpr int kK = 0;
  static constexpr int kV = kK + kKeyBytes;
  static constexpr int kQ = kV + kKeyBytes;
  static constexpr int kDout = kQ + kStages * kQueryBytes;
  // Two buffers; between items, 32 KiB for each group's dk and dv on their way out.
  static constexpr int kDs = kDout + kStages * kQueryBytes;
  static constexpr int kStagingBytes = 32768;
  static_assert(2 * kDsBytes <= 2 * kStagingBytes && 4 * 64 * kHeadSize <= kStagingBytes);
  static constexpr int kDq = kDs + 2 * kStagingBytes;  // 64 x 64 f32 for each group
  static constexpr int kLogSums = kDq + 2 * 16384;
  static constexpr int kDeltas = kLogSums + kStages * kStatisticBytes;
  static constexpr int kItems = kDeltas + kStages * kStatisticBytes;
  static constexpr int kBarriers = kItems + 16;
  static constexpr int kKFull = kBarriers;
  static constexpr int kKEmpty = kKFull + 8;
  static constexpr int kVFull = kKEmpty + 8;
  static constexpr int kVEmpty = kVFull + 8;
  static constexpr int kQFull = kVEmpty + 8;
  static constexpr int kQEmpty = kQFull + 8 * kStages;
  static constexpr int kDoutFull = kQEmpty + 8 * kStages;
  static constexpr int kDoutEmpty = kDoutFull + 8 * kStages;
  static constexpr int kDqFull = kDoutEmpty + 8 * kStages;
  static constexpr int kDqEmpty = kDqFull + 16;
  static constexpr int kItemFull = kDqEmpty + 16;
  static constexpr int kItemEmpty = kItemFull + 16;
  static constexpr int kFresh = kItemEmpty + 16;
  static constexpr int kEnd = kFresh + 8;
  static constexpr int kSharedBytes = kEnd + 1024;  // and padding for alignment
  static_assert(kSharedBytes <= 232448);
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Named barriers; 0 is __syncthreads().
constexpr int kDsBarrier = 1;
constexpr int kStagingBarrier = 2;  // + group

// The steps of an item, one after the other.
struct BackwardItem {
  int key_block, kv_head, sequence;
  int first_block;  // of queries
  int steps;
  int head, query_block;

  __device__ __forceinline__ BackwardItem(const BackwardShape& shape, int item) {
    const int pair = item / shape.key_blocks;
    key_block = shape.key_blocks - 1 - (item - pair * shape.key_blocks);
    sequence = pair / shape.kv_heads;
    kv_head = pair - sequence * shape.kv_heads;
    first_block = shape.first_query_block(key_block);
    steps = shape.heads_per_kv * (shape.query_blocks - first_block);
    head = kv_head * shape.heads_per_kv;
    query_block = first_block;
  }
  __device__ __forceinline__ void advance(const BackwardShape& shape) {
    if (++query_block == shape.query_blocks) {
      query_block = first_block;
      ++head;
    }
  }
};

// The number of the next item, as written by the loader. Whole warps or single threads call it.
template <class C>
__device__ __forceinline__ int read_item(std::uint32_t shared, Ring<2>& slots, bool leads,
                                         bool whole_warp) {
  wait(shared + C::kItemFull + 8 * slots.stage(), slots.parity());
  const int item = load_word(shared + C::kItems + 4 * slots.stage());
  if (whole_warp) __syncwarp();
  if (leads) arrive(shared + C::kItemEmpty + 8 * slots.stage());
  slots.advance();
  return item;
}

template <class C>
__device__ __forceinline__ void load_items(const BackwardArgs& args, std::uint32_t shared) {
  const BackwardShape& shape = args.shape;
  Ring<2> slots;
  Ring<C::kStages> ring;
  while (true) {
    const auto number = static_cast<int>(atomicAdd(args.next_item, 1u));
    wait(shared + C::kItemEmpty + 8 * slots.stage(), slots.parity() ^ 1);
    store_word(shared + C::kItems + 4 * slots.stage(), number);
    arrive(shared + C::kItemFull + 8 * slots.stage());
    slots.advance();
    if (number >= args.items) return;

    BackwardItem item(shape, number);
    const auto load_keys = [&](const CUtensorMap& map, int place, int full, int empty) {
      wait(shared + empty, slots.stage());
      arrive_expecting(shared + full, C::kKeyBytes);
#pragma unroll
      for (int i = 0; i < C::kColumnTiles; ++i) {
        load_box(shared + place + i * C::kKeys * 128, map, shared + full, 64 * i, item.kv_head,
                 item.key_block * C::kKeys, item.sequence);
      }
    };
    const auto load_queries = [&](const CUtensorMap& map, const float* statistics, int place,
                                  int statistics_place, int full, int empty) {
      const std::uint32_t barrier = shared + full + 8 * ring.stage();
      wait(shared + empty + 8 * ring.stage(), ring.parity() ^ 1);
      arrive_expecting(barrier, C::kQueryBytes + C::kStatisticBytes);
#pragma unroll
      for (int i = 0; i < C::kColumnTiles; ++i) {
        load_box(shared + place + ring.stage() * C::kQueryBytes + i * C::kQueries * 128, map,
                 barrier, 64 * i, item.head, item.query_block * C::kQueries, item.sequence);
      }
      const int row = (item.sequence * shape.heads + item.head) * shape.padded_queries +
                      item.query_block * C::kQueries;
      load_bytes(shared + statistics_place + ring.stage() * C::kStatisticBytes, statistics + row,
                 C::kStatisticBytes, barrier);
    };
    // Loads those of the first step before the keys, because the previous item needs the keys'
    // memory longest.
    bool first = true;
    for (int left = item.steps; left > 0; --left, item.advance(shape), ring.advance()) {
      load_queries(args.q, args.log_sums, C::kQ, C::kLogSums, C::kQFull, C::kQEmpty);
      load_queries(args.dout, args.deltas, C::kDout, C::kDeltas, C::kDoutFull, C::kDoutEmpty);
      if (first) {
        load_keys(args.v, C::kV, C::kVFull, C::kVEmpty);
        load_keys(args.k, C::kK, C::kKFull, C::kKEmpty);
        first = false;
      }
    }
  }
}

// Adds the groups' dq of each step to the sums, in turn; one thread.
template <class C>
__device__ __forceinline__ void add_dq(const BackwardArgs& args, std::uint32_t shared) {
  const BackwardShape& shape = args.shape;
  constexpr int kBytes = 16384;
  Ring<2> slots;
  std::uint32_t parity = 0;
  while (true) {
    const int number = read_item<C>(shared, slots, true, false);
    if (number >= args.items) return;
    BackwardItem item(shape, number);
    for (int left = item.steps; left > 0; --left, item.advance(shape), parity ^= 1) {
      const int block =
          (item.sequence * shape.heads + item.head) * shape.query_blocks + item.query_block;
      float* const to = args.dq + static_cast<std::int64_t>(block) * (2 * kBytes / 4);
      std::uint32_t* const turn = args.turns + block;
      const auto before =
          static_cast<std::uint32_t>(shape.last_key_block(item.query_block) - item.key_block);
      if (before != 0) {
        Guard guard;
        const auto turns_passed = [&] {
          std::uint32_t now;
          asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
          return now;
        };
        while (turns_passed() != before) guard.poll(0xffff, before);
      }
#pragma unroll
      for (int group = 0; group < 2; ++group) {
        wait(shared + C::kDqFull + 8 * group, parity);
        const std::uint32_t from = shared + C::kDq + group * kBytes;
        if (before == 0) {
          store_bytes(to + group * (kBytes / 4), from, kBytes);
        } else {
          add_floats(to + group * (kBytes / 4), from, kBytes);
        }
        end_stores();
      }
      wait_for_reads();
      arrive(shared + C::kDqEmpty);
      arrive(shared + C::kDqEmpty + 8);
      wait_for_stores();
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(turn), "r"(before + 1) : "memory");
    }
  }
}

// Masks the columns (queries) before `lowest` in each of the thread's two rows (keys). `lowest`
// counts from the thread's first column.
template <int kCount>
__device__ __forceinline__ void drop_unseen(float (&scores)[kCount], const int (&lowest)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i / 4 * 8 + i % 2 < lowest[i / 2 % 2]) scores[i] = -INFINITY;
  }
}

template <class C>
__device__ __forceinline__ void differentiate(const BackwardArgs& args, std::uint32_t shared,
                                              int warp) {
  using T = typename C::T;
  const BackwardShape& shape = args.shape;
  const int group = warp / 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = 64 * group + warp % 4 * 16 + lane / 4;
  const bool leads_warp = lane == 0;
  const bool leads_group = threadIdx.x % 128 == 0;
  const Operand own_k = operand(shared + C::kK + group * 8192);
  const Operand own_v = operand(shared + C::kV + group * 8192);
  // dq: with heads of 64, a group takes half of the queries; with 128, half of the columns.
  const Operand all_k = operand(shared + C::kK + (C::kHeadSize == 64 ? 0 : group * 16384));
  const Operand all_ds = operand(shared + C::kDs + (C::kHeadSize == 64 ? group * 16384 : 0));
  const Operand q_rows = operand(shared + C::kQ);
  const Operand q_across = operand(shared + C::kQ, C::kQueries * 128);
  const Operand dout_rows = operand(shared + C::kDout);
  const Operand dout_across = operand(shared + C::kDout, C::kQueries * 128);
  const std::uint32_t own_dq =
      shared + C::kDq + group * 16384 + static_cast<std::uint32_t>(threadIdx.x) % 128 * 16;

  Ring<2> slots;
  Ring<C::kStages> queries;
  std::uint32_t item_parity = 0;
  bool staged = false;
  while (true) {
    const int number = read_item<C>(shared, slots, leads_warp, true);
    if (number >= args.items) break;
    BackwardItem item(shape, number);
    const int first_key = item.key_block * C::kKeys;
    float scores[C::kQueries / 2];
    float dk[C::kHeadSize / 2];
    float dv[C::kHeadSize / 2];
    const auto issue_scores = [&](int stage) {
      multiply_rows<T, C::kQueries, C::kHeadSize>(scores, own_k, C::kKeys * 128,
                                                  further(q_rows, stage * C::kQueryBytes),
                                                  C::kQueries * 128);
      end_products();
    };

    wait(shared + C::kKFull, item_parity);
    wait(shared + C::kQFull + 8 * queries.stage(), queries.parity());
    forget(scores);
    start_products();
    issue_scores(queries.stage());
    wait(shared + C::kVFull, item_parity);
    item_parity ^= 1;
    wait_for_products<0>();
    pin(scores);

    for (int step = 0; step < item.steps; ++step, item.advance(shape)) {
      const int stage = queries.stage();
      const int stage_bytes = stage * C::kQueryBytes;
      wait(shared + C::kDoutFull + 8 * stage, queries.parity());
      queries.advance();

      float dp[C::kQueries / 2];
      forget(dp);
      start_products();
      multiply_rows<T, C::kQueries, C::kHeadSize>(
          dp, own_v, C::kKeys * 128, further(dout_rows, stage_bytes), C::kQueries * 128);
      end_products();

      const int first_query = item.query_block * C::kQueries;
      if (first_key + C::kKeys > shape.keys ||
          (shape.causal && first_key + 64 * group + 63 > first_query + shape.offset)) {
        int lowest[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = first_key + row + 8 * i;
          const int seen_from = shape.causal ? key - shape.offset - first_query : 0;
          lowest[i] = (key < shape.keys ? seen_from : C::kQueries) - lane % 4 * 2;
        }
        drop_unseen(scores, lowest);
      }
      const std::uint32_t statistics = stage * C::kStatisticBytes + lane % 4 * 8;
#pragma unroll
      for (int i = 0; i < C::kQueries / 8; ++i) {
        const float2 log_sum = load_two_floats(shared + C::kLogSums + statistics + 32 * i);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float& x = scores[4 * i + j];
          x = exp2_approximate(fmaf(x, args.scale_log2, j % 2 ? -log_sum.y : -log_sum.x));
        }
      }
      pin(scores);
      keep_order(shared + C::kFresh);
      wait_for_products<0>();
      pin(dp);
      std::uint32_t p[C::kQueries / 4], ds[C::kQueries / 4];
#pragma unroll
      for (int i = 0; i < C::kQueries / 8; ++i) {
        const float2 delta = load_two_floats(shared + C::kDeltas + statistics + 32 * i);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int at = 4 * i + 2 * j;
          p[2 * i + j] = pack<T>(scores[at], scores[at + 1]);
          ds[2 * i + j] =
              pack<T>(scores[at] * (dp[at] - delta.x), scores[at + 1] * (dp[at + 1] - delta.y));
        }
      }
      const int add = step != 0;
      pin(p);
      pin(dv);
      start_products();
      multiply_fragments<T, C::kHeadSize, C::kQueries>(dv, p, further(dout_across, stage_bytes),
                                                       add);
      end_products();
      if (staged) {  // dk and dv of the previous item are stored
        if (leads_group) wait_for_reads();
        sync_threads(kDsBarrier, 256);
        staged = false;
      }
      store_fragments(shared + C::kDs + stage * C::kDsBytes + group * 8192, 16384, ds);
      fence_shared_for_copies();
      sync_threads(kDsBarrier, 256);

      float dq[32];
      pin(ds);
      pin(dk);
      forget(dq);
      start_products();
      multiply_across<T, 64, C::kKeys>(dq, further(all_ds, stage * C::kDsBytes), all_k);
      end_products();
      multiply_fragments<T, C::kHeadSize, C::kQueries>(dk, ds, further(q_across, stage_bytes), add);
      end_products();

      wait_for_products<1>();
      pin(p);
      pin(dv);
      pin(dq);
      if (leads_warp) {
        arrive(shared + C::kDoutEmpty + 8 * stage);
        if (step == item.steps - 1) arrive(shared + C::kVEmpty);
      }
      wait(shared + C::kDqEmpty + 8 * group, stage ^ 1);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        store_floats(own_dq + i * 2048, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
      }
      fence_shared_for_copies();
      __syncwarp();
      if (leads_warp) arrive(shared + C::kDqFull + 8 * group);

      // Also after the last step, where they are not needed: a branch would cost registers.
      if (step != item.steps - 1) wait(shared + C::kQFull + 8 * queries.stage(), queries.parity());
      forget(scores);
      start_products();
      issue_scores(queries.stage());

      wait_for_products<0>();
      pin(scores);
      pin(ds);
      pin(dk);
      if (leads_warp) {
        arrive(shared + C::kQEmpty + 8 * stage);
        if (step == item.steps - 1) arrive(shared + C::kKEmpty);
      }
    }

    // dS is not read any more, so dk and dv leave through its memory.
    sync_threads(kDsBarrier, 256);
    const std::uint32_t staging = shared + C::kDs + group * C::kStagingBytes;
    const float ones[2] = {1, 1};
    const float scales[2] = {args.scale, args.scale};
    store_rows<T>(staging, 8192, dv, ones);
    store_rows<T>(staging + 128 * C::kHeadSize, 8192, dk, scales);
    fence_shared_for_copies();
    sync_threads(kStagingBarrier + group, 128);
    if (leads_group && first_key + 64 * group < shape.keys) {
#pragma unroll
      for (int i = 0; i < C::kColumnTiles; ++i) {
        store_box(args.dv, staging + i * 8192, 64 * i, item.kv_head, first_key + 64 * group,
                  item.sequence);
        store_box(args.dk, staging + 128 * C::kHeadSize + i * 8192, 64 * i, item.kv_head,
                  first_key + 64 * group, item.sequence);
      }
      end_stores();
    }
    staged = true;
  }
  if (leads_group) wait_for_reads();
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    hopper_attention_backward(const __grid_constant__ BackwardArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ std::byte memory[];
  const std::uint32_t shared = (shared_address(memory) + 1023) & ~1023u;
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  start_next();
  if (threadIdx.x == 0) {
    init_barrier(shared + C::kFresh, 1);
    init_barrier(shared + C::kKFull, 1);
    init_barrier(shared + C::kKEmpty, 8);
    init_barrier(shared + C::kVFull, 1);
    init_barrier(shared + C::kVEmpty, 8);
    for (int i = 0; i < C::kStages; ++i) {
      init_barrier(shared + C::kQFull + 8 * i, 1);
      init_barrier(shared + C::kQEmpty + 8 * i, 8);
      init_barrier(shared + C::kDoutFull + 8 * i, 1);
      init_barrier(shared + C::kDoutEmpty + 8 * i, 8);
    }
    for (int i = 0; i < 2; ++i) {
      init_barrier(shared + C::kDqFull + 8 * i, 4);
      init_barrier(shared + C::kDqEmpty + 8 * i, 1);
      init_barrier(shared + C::kItemFull + 8 * i, 1);
      init_barrier(shared + C::kItemEmpty + 8 * i, 9);  // the groups' warps, and dq's
    }
    publish_barriers();
  }
  __syncthreads();
  wait_for_previous();
  if (warp >= 8) {
    shrink_registers<C::kLoaderRegisters>();
    if (threadIdx.x == 256) load_items<C>(args, shared);
    if (threadIdx.x == 288) add_dq<C>(args, shared);
  } else {
    grow_registers<C::kGroupRegisters>();
    differentiate<C>(args, shared, warp);
  }
#endif
}

}  // namespace lockstep::cuda::hopper
