// Attention of one strip of queries in tiles: forward.inl with its products in bf16. Part
// of attention's kernels.
#pragma once

#include "lockstep/ops/cpu/attention/forward.inl"
#include "lockstep/ops/cpu/attention/squares.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

// Weights become exp(scale score - largest), packed on the right; the largest and the totals those
// of a block more.
template <bool kDropout>
void soften_packed(const Meeting& at, const Matrix& scores, float scale, const Matrix& kept,
                   float* largest, float* totals, float* rescale, BFloat16* weights) {
  for (std::size_t group = 0; group < kAttentionBlock / kGroup; ++group) {
    const std::size_t i = group * kGroup;
    const std::size_t key_end =
        i < at.tile.count ? at.sight.key_end(i + kGroup - 1, at.block.count) : 0;
    for (std::size_t v = 0; v < kGroupVectors; ++v) {
      const std::size_t to = i + v * kLanes;
      Floats most = splat(-kInfinity);
      for (std::size_t j = 0; j < key_end; ++j) most = larger(most, load(scores.row(j) + to));
      const Floats former = load(largest + to);
      most = larger(former, most * scale);
      const Floats shift = finite_or_zero(most);
      const Floats factor = exp_of_score(former - shift);
      const auto weight_of = [&](std::size_t j, Floats& sum) {
        if (j >= key_end) return Floats{};
        const Floats weight = exp_of_score(load(scores.row(j) + to) * scale - shift);
        sum += weight;
        return kDropout ? weight * load(kept.row(j) + to) : weight;
      };
      Floats sum = {};
      for (std::size_t pair = 0; pair < kAttentionBlock / 2; ++pair) {
        const Floats even = weight_of(2 * pair, sum);
        const Floats odd = weight_of(2 * pair + 1, sum);
        store_pairs(pairs_at(weights, group, pair) + 2 * v * kLanes, even, odd);
      }
      store(rescale + to, factor);
      store(largest + to, most);
      store(totals + to, load(totals + to) * factor + sum);
    }
  }
}

// What was summed up so far, in terms of the new largest scores; most do not change any more.
inline void rescale_sums(const Matrix& sums, std::size_t head_size, const float* rescale) {
  for (std::size_t i = 0; i < kAttentionBlock; i += kLanes) {
    const Floats factor = load(rescale + i);
    bool changes = false;
    for (std::size_t lane = 0; lane < kLanes; ++lane) changes |= rescale[i + lane] != 1;
    if (!changes) continue;
    for (std::size_t h = 0; h < head_size; ++h)
      store(sums.row(h) + i, load(sums.row(h) + i) * factor);
  }
}

template <class Unit>
class SquaresForward {
 public:
  SquaresForward(const AttentionCall& call, const QueryStrip& strip,
                 const ForwardWorkspace& workspace)
      : call_(call),
        strip_(strip),
        workspace_(workspace),
        size_(call.head_size),
        key_head_(strip.head / call.group),
        keys_(reinterpret_cast<BFloat16*>(workspace.keys)),
        values_(reinterpret_cast<BFloat16*>(workspace.values)),
        copy_(keys_ + kAttentionBlock * size_),
        weights_(reinterpret_cast<BFloat16*>(workspace.packed)) {}

  void run() {
    Unit::begin();
    for (std::size_t t = 0; t < tiles_of(strip_); ++t) begin(t);
    const std::size_t blocks = key_blocks(call_, strip_.first + strip_.count);
    for (std::size_t b = first_key_block(call_, strip_.first); b < blocks; ++b) {
      const KeyBlock block(call_, strip_.sequence, b);
      if (!block.any()) continue;
      pack_rows(call_.k, block);
      pack_strips<false>(lines_of_head(block_of(call_.v, block), size_), values_);
      for (std::size_t t = 0; t < tiles_of(strip_); ++t) {
        const Tile tile(strip_, t);
        const Meeting at{tile, block, Sight(call_, tile, block)};
        if (b + 1 < blocks) prefetch_block(b + 1, t);
        if (at.sight.any(tile)) meet(at, t);
      }
    }
    for (std::size_t t = 0; t < tiles_of(strip_); ++t) end(t);
    if (call_.probabilities != nullptr) write_probabilities();
    Unit::end();
  }

 private:
  Matrix scores() const { return {workspace_.scores, kAttentionBlock}; }
  Matrix kept() const { return {workspace_.kept, kAttentionBlock}; }
  BFloat16* queries(std::size_t t) const {
    return reinterpret_cast<BFloat16*>(workspace_.queries_transposed +
                                       t * kAttentionBlock * workspace_.head);
  }
  Matrix sums(std::size_t t) const {
    return {workspace_.sums + t * kAttentionBlock * workspace_.head, kAttentionBlock};
  }
  float* largest(std::size_t t) const { return workspace_.largest + t * kAttentionBlock; }
  float* totals(std::size_t t) const { return workspace_.totals + t * kAttentionBlock; }

  HeadPart<BFloat16> key_rows(const HeadRows& rows, const KeyBlock& block) const {
    return {rows, key_head_, size_, strip_.sequence * call_.keys + block.first};
  }
  HeadPart<BFloat16> query_rows(const HeadRows& rows, const Tile& tile) const {
    return {rows, strip_.head, size_, strip_.sequence * call_.queries + tile.first};
  }
  BlockRows block_of(const HeadRows& rows, const KeyBlock& block) const {
    return whole_block(key_rows(rows, block), block.count, size_, block.mask, copy_);
  }
  void pack_rows(const HeadRows& rows, const KeyBlock& block) const {
    pack_strips<false>(lines_of_rows(block_of(rows, block), size_), keys_);
  }
  void prefetch_block(std::size_t b, std::size_t t) const {
    const KeyBlock block(call_, strip_.sequence, b);
    const std::size_t tiles = tiles_of(strip_);
    prefetch(key_rows(call_.k, block), block.count, size_, tiles, t);
    prefetch(key_rows(call_.v, block), block.count, size_, tiles, t);
  }

  void begin(std::size_t t) {
    const Tile tile(strip_, t);
    const BlockRows rows =
        whole_block(query_rows(call_.q, tile), tile.count, size_, nullptr, copy_);
    pack_strips<true>(lines_of_rows(rows, size_), queries(t));
    clear(sums(t), size_);
    fill(largest(t), kAttentionBlock, -kInfinity);
    fill(totals(t), kAttentionBlock, 0);
  }

  // Hidden ones are -infinity. Gives the scale that they still need.
  float compute_scores(const Meeting& at, std::size_t t) {
    multiply_packed<Unit, false>(keys_, kAttentionBlock, queries(t), kAttentionBlock, size_,
                                 scores());
    const float scale = scale_beside(scores(), call_);
    add_bias(call_, strip_.head, at, scores());
    hide(at, scores());
    return scale;
  }

  void meet(const Meeting& at, std::size_t t) {
    const float scale = compute_scores(at, t);
    if (call_.dropout.given) {
      fill_kept(call_, strip_, at, kept());
      soften_packed<true>(at, scores(), scale, kept(), largest(t), totals(t), workspace_.rescale,
                          weights_);
    } else {
      soften_packed<false>(at, scores(), scale, kept(), largest(t), totals(t), workspace_.rescale,
                           weights_);
    }
    rescale_sums(sums(t), size_, workspace_.rescale);
    multiply_packed<Unit, true>(values_, size_, weights_, kAttentionBlock, kAttentionBlock,
                                sums(t));
  }

  // Leaves the log-sum-exp in `largest`.
  void end(std::size_t t) {
    const Tile tile(strip_, t);
    float inverse[kAttentionBlock];
    for (std::size_t i = 0; i < kAttentionBlock; ++i) {
      inverse[i] = totals(t)[i] == 0 ? 1 : 1 / totals(t)[i];
    }
    narrow_transposed(sums(t), tile.count, size_, inverse, query_rows(call_.out, tile));
    const std::size_t row = (strip_.sequence * call_.heads + strip_.head) * call_.queries;
    for (std::size_t i = 0; i < tile.count; ++i) {
      largest(t)[i] += __builtin_logf(totals(t)[i]);
      call_.log_sum[row + tile.first + i] = largest(t)[i];
    }
  }

  // With the log-sum-exp known, the scores are computed once more.
  void write_probabilities() {
    for (std::size_t b = 0; b * kAttentionBlock < call_.keys; ++b) {
      const KeyBlock block(call_, strip_.sequence, b);
      pack_rows(call_.k, block);
      for (std::size_t t = 0; t < tiles_of(strip_); ++t) {
        const Tile tile(strip_, t);
        const Meeting at{tile, block, Sight(call_, tile, block)};
        const float scale = compute_scores(at, t);
        for (std::size_t i = 0; i < kBlockElements; i += kLanes) {
          store(workspace_.scores + i, load(workspace_.scores + i) * scale);
        }
        write_probabilities_of(call_, strip_, at, scores(), largest(t));
      }
    }
  }

  const AttentionCall& call_;
  const QueryStrip& strip_;
  const ForwardWorkspace& workspace_;
  const std::size_t size_;
  const std::size_t key_head_;
  BFloat16* keys_;     // rows packed on the left
  BFloat16* values_;   // columns packed on the left
  BFloat16* copy_;     // of a block
  BFloat16* weights_;  // packed on the right
};

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
