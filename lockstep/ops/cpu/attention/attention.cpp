#include "lockstep/ops/cpu/attention/attention.h"

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/ops/check.h"
#include "lockstep/ops/cpu/attention/kernels.h"
#include "lockstep/ops/cpu/attention/workspace.h"
#include "lockstep/ops/cpu/team/supply.h"

namespace lockstep::cpu {
namespace {

std::size_t whole(std::int64_t x) { return static_cast<std::size_t>(x); }

HeadRows rows_of(const ops::Heads& heads) {
  const Tensor& rows = heads.rows;
  if (!ops::is_given(rows)) return {};
  return {rows.data() + whole(heads.first) * size_of(rows.dtype()), whole(rows.shape()[1])};
}

AttentionDropout dropout_of(const ops::Dropout& dropout) {
  const double keep = 1 - dropout.probability;
  const std::uint64_t limit = keep_limit(keep);
  return {.given = limit < keep_limit(1),
          .seed = dropout.seed,
          .step = static_cast<std::uint64_t>(static_cast<double>(dropout.step)),
          .first = dropout.first,
          .limit = static_cast<std::uint32_t>(limit),
          .factor = static_cast<float>(1 / keep)};
}

// What forward and backward have in common.
template <class Op>
AttentionCall call_of(const Op& op) {
  const ops::AttentionShape& shape = op.shape;
  return {.dtype = shape.dtype,
          .queries = whole(shape.queries),
          .keys = whole(shape.keys),
          .heads = whole(shape.heads),
          .group = whole(shape.heads / shape.kv_heads),
          .head_size = whole(shape.head_size),
          .causal = shape.causal,
          .window = whole(shape.window),
          .scale = op.scale,
          .softcap = op.softcap,
          .distances = whole(shape.distances),
          .bias = reinterpret_cast<const float*>(op.bias.data()),
          .q = rows_of(op.q),
          .k = rows_of(op.k),
          .v = rows_of(op.v),
          .out = rows_of({op.out}),
          .key_mask = ops::is_given(op.key_mask)
                          ? reinterpret_cast<const std::uint8_t*>(op.key_mask.data())
                          : nullptr,
          .dropout = dropout_of(op.dropout),
          .log_sum = reinterpret_cast<float*>(op.log_sum.data())};
}

// The work of one thread on key heads that all threads share: first gradients of keys and values,
// then of queries. Scores are computed twice, for 7 products of matrices instead of 5.
void share_key_head(const AttentionKernels& kernels, const AttentionCall& call, BackwardPart part,
                    Dealt mine, const BackwardWorkspace& workspace) {
  part.of_queries = false;
  part.key_blocks = mine;
  kernels.backward(call, part, workspace);
  part.of_queries = true;
  part.of_keys = false;
  part.key_blocks = {};
  part.strips = mine;
  kernels.backward(call, part, workspace);
}

// dbias = the sums over sequences and tiles of queries, in this order.
void sum_bias_gradients(const Cpu& cpu, const ops::AttentionBackward& op, const float* of_tiles) {
  const std::size_t heads = whole(op.shape.heads);
  const std::size_t tiles = tiles_of_queries(op.shape);
  const std::size_t distances = whole(op.shape.distances);
  const auto dbias = op.dbias.as<float>();
  cpu.team.run([&](int thread) {
    const Range mine = share(heads * distances, cpu.team.size(), thread);
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      double sum = 0;
      for (std::size_t sequence = 0; sequence < whole(op.shape.batch); ++sequence) {
        const std::size_t first = (sequence * heads + i / distances) * tiles;
        for (std::size_t tile = first; tile < first + tiles; ++tile) {
          sum += static_cast<double>(of_tiles[tile * distances + i % distances]);
        }
      }
      dbias[i] = static_cast<float>(sum);
    }
  });
}

// One query per sequence: the heads are what there is to share.
void run_rows(const Cpu& cpu, const AttentionKernels& kernels, const ops::Attention& op,
              std::byte* scratch) {
  const AttentionCall call = call_of(op);
  const std::size_t heads = whole(op.shape.batch) * call.heads;
  cpu.team.run([&](int thread) {
    const RowWorkspace workspace = row_workspace(op.shape, cpu.team.size(), thread, scratch);
    const Range mine = share(heads, cpu.team.size(), thread);
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      kernels.row(call, i / call.heads, i % call.heads, workspace);
    }
  });
}

}  // namespace

// A thread that is free takes a whole head, so that its keys stay in the cache; then strips of
// those heads that are too few for all threads, those that see most keys first.
void run(const Cpu& cpu, const AttentionKernels& kernels, const ops::Attention& op,
         std::byte* scratch) {
  ops::check(op);
  AttentionCall call = call_of(op);
  const bool plain = !call.dropout.given && !ops::is_given(op.probabilities);
  if (call.queries == 1 && plain) return run_rows(cpu, kernels, op, scratch);
  if (ops::is_given(op.probabilities)) {
    call.probabilities = reinterpret_cast<float*>(op.probabilities.data());
  }
  const std::size_t threads = whole(cpu.team.size());
  const std::size_t size = tiles_per_strip(op.shape, cpu.team.size()) * kAttentionBlock;
  const std::size_t strips = (call.queries + size - 1) / size;
  const std::size_t heads = whole(op.shape.batch) * call.heads;
  const std::size_t left = heads % threads;
  Supply whole_heads({0, heads - left}, cpu.team.size(), 1);
  Supply left_strips({0, left * strips}, cpu.team.size(), 1);
  cpu.team.run([&](int thread) {
    const ForwardWorkspace workspace =
        forward_workspace(op.shape, cpu.team.size(), thread, scratch);
    const auto run_strip = [&](std::size_t head, std::size_t strip) {
      const QueryStrip queries{.sequence = head / call.heads,
                               .head = head % call.heads,
                               .first = strip * size,
                               .count = std::min(size, call.queries - strip * size)};
      kernels.forward(call, queries, workspace);
    };
    for (Range one = whole_heads.take(1); one.size() > 0; one = whole_heads.take(1)) {
      for (std::size_t strip = 0; strip < strips; ++strip) run_strip(one.begin, strip);
    }
    for (Range one = left_strips.take(1); one.size() > 0; one = left_strips.take(1)) {
      run_strip(heads - left + one.begin % left, strips - 1 - one.begin / left);
    }
  });
}

// A thread that is free takes a whole key head; those that are left, too few to occupy all threads,
// they share where that is faster.
void run(const Cpu& cpu, const AttentionKernels& kernels, const ops::AttentionBackward& op,
         std::byte* scratch) {
  ops::check(op);
  AttentionCall call = call_of(op);
  call.dout = rows_of({op.dout});
  call.dq = rows_of(op.dq);
  call.dk = rows_of(op.dk);
  call.dv = rows_of(op.dv);
  call.dbias_of_tiles = dbias_workspace(op.shape, cpu.team.size(), scratch);
  const int threads = cpu.team.size();
  const std::size_t kv_heads = whole(op.shape.kv_heads);
  const std::size_t key_heads = whole(op.shape.batch) * kv_heads;
  const std::size_t left = key_heads % whole(threads);
  const std::size_t shared = left * 7 < whole(threads) * 5 ? left : 0;
  Supply whole_heads({0, key_heads - shared}, threads, 1);
  cpu.team.run([&](int thread) {
    const BackwardWorkspace workspace = backward_workspace(op.shape, threads, thread, scratch);
    for (Range one = whole_heads.take(1); one.size() > 0; one = whole_heads.take(1)) {
      const std::size_t i = one.begin;
      kernels.backward(call, {.sequence = i / kv_heads, .key_head = i % kv_heads}, workspace);
    }
    for (std::size_t i = key_heads - shared; i < key_heads; ++i) {
      share_key_head(kernels, call, {.sequence = i / kv_heads, .key_head = i % kv_heads},
                     {whole(threads), whole(thread)}, workspace);
    }
  });
  if (call.distances > 0) sum_bias_gradients(cpu, op, call.dbias_of_tiles);
}

void run(const Cpu& cpu, const ops::Attention& op, std::byte* scratch) {
  run(cpu, attention_kernels(cpu.isa), op, scratch);
}

void run(const Cpu& cpu, const ops::AttentionBackward& op, std::byte* scratch) {
  run(cpu, attention_kernels(cpu.isa), op, scratch);
}

std::size_t attention_scratch(const Cpu& cpu, const ops::AttentionShape& shape) {
  return workspace_bytes(shape, cpu.team.size());
}

}  // namespace lockstep::cpu
