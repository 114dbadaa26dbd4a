// Attention of one strip of queries. Part of attention's kernels.
//
// For each tile, sums[query] is the sum over all keys so far of exp(score - largest) value, and
// totals[query] that of exp(score - largest). When a block brings a larger score, both are
// multiplied by exp(former largest - largest). At the end, out = sums / totals.
#pragma once

#include "lockstep/base/simd/softmax.inl"
#include "lockstep/ops/cpu/attention/dropout.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

// What is subtracted from scores: `largest`, or anything but -infinity where all are.
inline Floats finite_or_zero(Floats largest) {
  return largest == splat(-kInfinity) ? Floats{} : largest;
}

// Scores become exp(score - largest), the largest and the totals those of a block more.
inline void soften(const Meeting& at, const Matrix& scores, float* largest, float* totals,
                   float* rescale) {
  constexpr std::size_t kWide = kAttentionPadding / kLanes;
  for (std::size_t i = 0; i < at.tile.count; i += kAttentionPadding) {
    const std::size_t key_end = at.sight.key_end(i + kAttentionPadding - 1, at.block.count);
    Floats most[kWide], shift[kWide], sum[kWide] = {};
    for (std::size_t v = 0; v < kWide; ++v) most[v] = load(largest + i + v * kLanes);
    for (std::size_t j = 0; j < key_end; ++j) {
      const float* row = scores.row(j) + i;
      for (std::size_t v = 0; v < kWide; ++v) most[v] = larger(most[v], load(row + v * kLanes));
    }
    for (std::size_t v = 0; v < kWide; ++v) {
      const std::size_t to = i + v * kLanes;
      shift[v] = finite_or_zero(most[v]);
      store(rescale + to, exp_of_score(load(largest + to) - shift[v]));
      store(largest + to, most[v]);
    }
    for (std::size_t j = 0; j < key_end; ++j) {
      float* row = scores.row(j) + i;
      for (std::size_t v = 0; v < kWide; ++v) {
        const Floats weight = exp_of_score(load(row + v * kLanes) - shift[v]);
        store(row + v * kLanes, weight);
        sum[v] += weight;
      }
    }
    for (std::size_t v = 0; v < kWide; ++v) {
      const std::size_t to = i + v * kLanes;
      store(totals + to, load(totals + to) * load(rescale + to) + sum[v]);
    }
  }
}

inline void multiply(const Meeting& at, const Matrix& to, const Matrix& factors) {
  for (std::size_t j = 0; j < at.block.count; ++j) {
    for (std::size_t i = 0; i < at.tile.count; i += kLanes) {
      store(to.row(j) + i, load(to.row(j) + i) * load(factors.row(j) + i));
    }
  }
}

// Of queries whose log-sum-exp is known, from their scores.
inline void write_probabilities_of(const AttentionCall& call, const QueryStrip& strip,
                                   const Meeting& at, const Matrix& scores, const float* log_sums) {
  const std::size_t row = (strip.sequence * call.heads + strip.head) * call.queries;
  for (std::size_t i = 0; i < at.tile.count; i += kLanes) {
    const Floats shift = finite_or_zero(load(log_sums + i));
    for (std::size_t j = 0; j < at.block.count; ++j) {
      const Floats probability = exp_of_score(load(scores.row(j) + i) - shift);
      float* to = call.probabilities + (row + at.tile.first + i) * call.keys + at.block.first;
      for (std::size_t lane = 0; lane < kLanes && i + lane < at.tile.count; ++lane) {
        to[lane * call.keys + j] = probability[lane];
      }
    }
  }
}

template <class T>
class ForwardStrip {
 public:
  ForwardStrip(const AttentionCall& call, const QueryStrip& strip,
               const ForwardWorkspace& workspace)
      : call_(call), strip_(strip), workspace_(workspace), key_head_(strip.head / call.group) {}

  void run() {
    for (std::size_t t = 0; t < tiles_of(strip_); ++t) begin(t);
    const std::size_t blocks = key_blocks(call_, strip_.first + strip_.count);
    for (std::size_t b = first_key_block(call_, strip_.first); b < blocks; ++b) {
      const KeyBlock block(call_, strip_.sequence, b);
      if (!block.any()) continue;
      take(call_.k, block, keys());
      take(call_.v, block, values());
      for (std::size_t t = 0; t < tiles_of(strip_); ++t) {
        const Tile tile(strip_, t);
        const Meeting at{tile, block, Sight(call_, tile, block)};
        if (b + 1 < blocks) prefetch_block(b + 1, t);
        if (at.sight.any(tile)) meet(at, t);
      }
    }
    for (std::size_t t = 0; t < tiles_of(strip_); ++t) end(t);
    if (call_.probabilities != nullptr) write_probabilities();
  }

 private:
  Matrix keys() const { return {workspace_.keys, workspace_.head}; }
  Matrix values() const { return {workspace_.values, workspace_.head}; }
  Matrix scores() const { return {workspace_.scores, kAttentionBlock}; }
  Matrix kept() const { return {workspace_.kept, kAttentionBlock}; }
  Matrix queries_transposed(std::size_t t) const {
    return {workspace_.queries_transposed + t * kAttentionBlock * workspace_.head, kAttentionBlock};
  }
  Matrix sums(std::size_t t) const {
    return {workspace_.sums + t * kAttentionBlock * workspace_.head, workspace_.head};
  }
  float* largest(std::size_t t) const { return workspace_.largest + t * kAttentionBlock; }
  float* totals(std::size_t t) const { return workspace_.totals + t * kAttentionBlock; }

  HeadPart<T> key_rows(const HeadRows& rows, const KeyBlock& block) const {
    return {rows, key_head_, call_.head_size, strip_.sequence * call_.keys + block.first};
  }
  void take(const HeadRows& rows, const KeyBlock& block, const Matrix& to) {
    widen(key_rows(rows, block), block.count, call_.head_size, 1, block.mask, to);
  }
  void prefetch_block(std::size_t b, std::size_t t) const {
    const KeyBlock block(call_, strip_.sequence, b);
    const std::size_t tiles = tiles_of(strip_);
    prefetch(key_rows(call_.k, block), block.count, call_.head_size, tiles, t);
    prefetch(key_rows(call_.v, block), block.count, call_.head_size, tiles, t);
  }

  void begin(std::size_t t) {
    const Tile tile(strip_, t);
    const HeadPart<T> from(call_.q, strip_.head, call_.head_size,
                           strip_.sequence * call_.queries + tile.first);
    widen(from, tile.count, call_.head_size, call_.scale, nullptr, sums(t));
    transpose(sums(t), tile.count, queries_transposed(t));
    clear(sums(t), padded(tile.count));
    fill(largest(t), kAttentionBlock, -kInfinity);
    fill(totals(t), kAttentionBlock, 0);
  }

  // Hidden ones are -infinity.
  void compute_scores(const Meeting& at, std::size_t t) {
    key_by_query(at, keys(), queries_transposed(t), scores());
    cap_scores(at, scores(), call_.softcap);
    add_bias(call_, strip_.head, at, scores());
    hide(at, scores());
  }

  void meet(const Meeting& at, std::size_t t) {
    compute_scores(at, t);
    soften(at, scores(), largest(t), totals(t), workspace_.rescale);
    if (call_.dropout.given) {
      fill_kept(call_, strip_, at, kept());
      multiply(at, scores(), kept());
    }
    add_over_keys(at, scores(), values(), sums(t), workspace_.rescale);
  }

  // Leaves the log-sum-exp in `largest`.
  void end(std::size_t t) {
    const Tile tile(strip_, t);
    const HeadPart<T> out(call_.out, strip_.head, call_.head_size,
                          strip_.sequence * call_.queries + tile.first);
    const std::size_t row = (strip_.sequence * call_.heads + strip_.head) * call_.queries;
    for (std::size_t i = 0; i < tile.count; ++i) {
      const float total = totals(t)[i];
      const Floats share = splat(total == 0 ? 1 : 1 / total);
      for_vectors(call_.head_size,
                  [row = out.row(i), sum = sums(t).row(i), share](std::size_t at, auto part) {
                    store_some(row + at, load(sum + at) * share, part);
                  });
      largest(t)[i] += __builtin_logf(total);
      call_.log_sum[row + tile.first + i] = largest(t)[i];
    }
  }

  // With the log-sum-exp known, the scores are computed once more.
  void write_probabilities() {
    for (std::size_t b = 0; b * kAttentionBlock < call_.keys; ++b) {
      const KeyBlock block(call_, strip_.sequence, b);
      take(call_.k, block, keys());
      for (std::size_t t = 0; t < tiles_of(strip_); ++t) {
        const Tile tile(strip_, t);
        const Meeting at{tile, block, Sight(call_, tile, block)};
        compute_scores(at, t);
        write_probabilities_of(call_, strip_, at, scores(), largest(t));
      }
    }
  }

  const AttentionCall& call_;
  const QueryStrip& strip_;
  const ForwardWorkspace& workspace_;
  const std::size_t key_head_;
};

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
