// Gradients of attention for one key head of one sequence, in tiles: backward.inl with
// its products in bf16. Part of attention's kernels.
//
//   scores[key][query]   = keys    x  queries       dweights[key][query] = values  x  dout
//   dvalues[key][head]  += weights x  dout          dkeys[key][head]    += dscores x  queries
//   dqueries[head][query] += keys^T x dscores
//
// A factor is packed again for the side that it stands on, and for the depth that it is summed
// over.
#pragma once

#include <type_traits>

#include "lockstep/ops/cpu/attention/squares.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

// What scores and dweights become: weights and dscores packed on the left, dscores also on the
// right.
struct PackedWeights {
  BFloat16* weights = nullptr;
  BFloat16* dscores = nullptr;
  BFloat16* dscores_right = nullptr;

  explicit PackedWeights(float* memory)
      : weights(reinterpret_cast<BFloat16*>(memory)),
        dscores(weights + kBlockElements),
        dscores_right(dscores + kBlockElements) {}
};

// Keys and queries that only pad a block get zeros. `dbias`, optional, gets the sums of dscores.
template <bool kDropout>
void weigh_packed(const Meeting& at, const Matrix& scores, float scale, float softcap,
                  const Matrix& dweights, const Matrix& kept, const float* log_sums,
                  const float* expected, const PackedWeights& to, DistanceStrip* dbias) {
  for (std::size_t key = 0; key < kAttentionBlock; key += 2) {
    for (std::size_t i = 0; i < kAttentionBlock; i += kLanes) {
      const std::size_t group = i / kGroup;
      const std::size_t lane = i % kGroup;
      Floats dscore[2] = {};
      for (std::size_t odd = 0; odd < 2; ++odd) {
        const std::size_t j = key + odd;
        Floats weight = {};
        if (j < at.block.count && i < at.tile.count) {
          const Floats score = load(scores.row(j) + i);
          const Floats probability = exp_of_score(score * scale - load(log_sums + i));
          const Floats factor = kDropout ? load(kept.row(j) + i) : splat(1);
          weight = kDropout ? probability * factor : probability;
          const Floats dweight = load(dweights.row(j) + i);
          dscore[odd] =
              probability * ((kDropout ? dweight * factor : dweight) - load(expected + i));
          if (softcap > 0) dscore[odd] *= soft_cap_slope(score, softcap);
          if (dbias != nullptr) {
            float* sum = dbias->of_key(j) + i;
            store(sum, load(sum) + dscore[odd]);
          }
        }
        store(row_at(to.weights, j, group) + lane, weight);
        store(row_at(to.dscores, j, group) + lane, dscore[odd]);
      }
      store_pairs(pairs_at(to.dscores_right, group, key / 2) + 2 * lane, dscore[0], dscore[1]);
    }
  }
}

template <class Unit>
class SquaresBackward {
 public:
  SquaresBackward(const AttentionCall& call, const BackwardPart& part,
                  const BackwardWorkspace& workspace)
      : call_(call),
        part_(part),
        workspace_(workspace),
        size_(call.head_size),
        keys_(reinterpret_cast<BFloat16*>(workspace.keys)),
        keys_by_head_(keys_ + kAttentionBlock * size_),
        values_(reinterpret_cast<BFloat16*>(workspace.values)),
        copy_(values_ + kAttentionBlock * size_),
        packed_(workspace.packed) {}

  void run() {
    Unit::begin();
    const std::size_t blocks = (call_.keys + kAttentionBlock - 1) / kAttentionBlock;
    for (std::size_t b = 0; b < blocks && part_.of_keys; ++b) {
      if (!part_.key_blocks.has(b)) continue;
      clear(dkeys(b), kAttentionBlock);
      clear(dvalues(b), kAttentionBlock);
    }
    const std::size_t strip_size = workspace_.tiles * kAttentionBlock;
    for (std::size_t member = 0; member < call_.group; ++member) {
      for (std::size_t s = 0; s * strip_size < call_.queries; ++s) {
        const std::size_t first = s * strip_size;
        if (part_.strips.has(s)) {
          meet_strip({part_.sequence, part_.key_head * call_.group + member, first,
                      smaller(strip_size, call_.queries - first)});
        }
      }
    }
    for (std::size_t b = 0; b < blocks && part_.of_keys; ++b) {
      if (part_.key_blocks.has(b)) write_key_gradients(b);
    }
    Unit::end();
  }

 private:
  Matrix scores() const { return {workspace_.scores, kAttentionBlock}; }
  Matrix dweights() const { return {workspace_.dscores, kAttentionBlock}; }
  Matrix kept() const { return {workspace_.kept, kAttentionBlock}; }
  Matrix dkeys(std::size_t b) const {
    return {workspace_.dkeys + b * kAttentionBlock * workspace_.head, workspace_.head};
  }
  Matrix dvalues(std::size_t b) const {
    return {workspace_.dvalues + b * kAttentionBlock * workspace_.head, workspace_.head};
  }
  // Of a tile: [head, block].
  Matrix dqueries(std::size_t t) const {
    return {workspace_.dqueries + t * kAttentionBlock * workspace_.head, kAttentionBlock};
  }
  // Of a tile, packed on the right: rows, to be summed over the head, and columns, to be summed
  // over queries.
  struct PackedTile {
    BFloat16* rows;
    BFloat16* columns;
  };
  PackedTile packed_tile(float* memory, std::size_t t) const {
    auto* first = reinterpret_cast<BFloat16*>(memory + t * kAttentionBlock * workspace_.head);
    return {first, first + kAttentionBlock * size_};
  }

  HeadPart<BFloat16> key_rows(const HeadRows& rows, const KeyBlock& block) const {
    return {rows, part_.key_head, size_, part_.sequence * call_.keys + block.first};
  }
  HeadPart<BFloat16> query_rows(const HeadRows& rows, const QueryStrip& strip,
                                const Tile& tile) const {
    return {rows, strip.head, size_, strip.sequence * call_.queries + tile.first};
  }
  BlockRows block_of(const HeadRows& rows, const KeyBlock& block) const {
    return whole_block(key_rows(rows, block), block.count, size_, block.mask, copy_);
  }

  void meet_strip(const QueryStrip& strip) {
    for (std::size_t t = 0; t < tiles_of(strip); ++t) begin(strip, t);
    const std::size_t blocks = key_blocks(call_, strip.first + strip.count);
    for (std::size_t b = first_key_block(call_, strip.first); b < blocks; ++b) {
      const KeyBlock block(call_, part_.sequence, b);
      if (!part_.key_blocks.has(b) || !block.any()) continue;
      const BlockRows keys = block_of(call_.k, block);
      pack_strips<false>(lines_of_rows(keys, size_), keys_);
      pack_strips<false>(lines_of_head(keys, size_), keys_by_head_);
      pack_strips<false>(lines_of_rows(block_of(call_.v, block), size_), values_);
      for (std::size_t t = 0; t < tiles_of(strip); ++t) {
        const Tile tile(strip, t);
        const Meeting at{tile, block, Sight(call_, tile, block)};
        if (b + 1 < blocks) prefetch_block(b + 1, tiles_of(strip), t);
        if (at.sight.any(tile)) meet(strip, at, t, b);
      }
    }
    if (!part_.of_queries) return;
    float scale[kAttentionBlock];
    fill(scale, kAttentionBlock, call_.scale);
    for (std::size_t t = 0; t < tiles_of(strip); ++t) {
      const Tile tile(strip, t);
      narrow_transposed(dqueries(t), tile.count, size_, scale, query_rows(call_.dq, strip, tile));
    }
  }

  void prefetch_block(std::size_t b, std::size_t tiles, std::size_t t) const {
    const KeyBlock block(call_, part_.sequence, b);
    prefetch(key_rows(call_.k, block), block.count, size_, tiles, t);
    prefetch(key_rows(call_.v, block), block.count, size_, tiles, t);
  }

  void pack_tile_rows(const HeadPart<BFloat16>& from, std::size_t count, const PackedTile& to) {
    const BlockRows rows = whole_block(from, count, size_, nullptr, copy_);
    pack_strips<true>(lines_of_rows(rows, size_), to.rows);
    pack_strips<true>(lines_of_head(rows, size_), to.columns);
  }

  void begin(const QueryStrip& strip, std::size_t t) {
    const Tile tile(strip, t);
    const HeadPart<BFloat16> dout = query_rows(call_.dout, strip, tile);
    const HeadPart<BFloat16> out = query_rows(call_.out, strip, tile);
    pack_tile_rows(query_rows(call_.q, strip, tile), tile.count,
                   packed_tile(workspace_.queries, t));
    pack_tile_rows(dout, tile.count, packed_tile(workspace_.dout, t));
    clear(dqueries(t), size_);
    clear_bias_gradient(call_, part_, strip, tile);
    float* log_sums = workspace_.log_sums + t * kAttentionBlock;
    float* expected = workspace_.expected + t * kAttentionBlock;
    const float* from =
        call_.log_sum + (strip.sequence * call_.heads + strip.head) * call_.queries + tile.first;
    for (std::size_t i = 0; i < kAttentionBlock; ++i) {
      Floats sum = {};
      for (std::size_t c = 0; c < size_ && i < tile.count; c += kLanes) {
        sum += load(dout.row(i) + c) * load(out.row(i) + c);
      }
      expected[i] = sum_of_lanes(sum);
      // A query without keys, or none at all, has no probabilities: exp(score - infinity).
      const bool sees = i < tile.count && from[i] != -kInfinity;
      log_sums[i] = sees ? from[i] : kInfinity;
    }
  }

  void meet(const QueryStrip& strip, const Meeting& at, std::size_t t, std::size_t b) {
    const PackedTile queries = packed_tile(workspace_.queries, t);
    const PackedTile dout = packed_tile(workspace_.dout, t);
    multiply_packed<Unit, false>(keys_, kAttentionBlock, queries.rows, kAttentionBlock, size_,
                                 scores());
    multiply_packed<Unit, false>(values_, kAttentionBlock, dout.rows, kAttentionBlock, size_,
                                 dweights());
    const float scale = scale_beside(scores(), call_);
    add_bias(call_, strip.head, at, scores());
    hide(at, scores());
    const float* log_sums = workspace_.log_sums + t * kAttentionBlock;
    const float* expected = workspace_.expected + t * kAttentionBlock;
    const bool sums_bias = call_.distances > 0 && part_.of_queries;
    DistanceStrip dbias(call_, at);
    if (sums_bias) dbias.clear();
    const auto weigh_all = [&]<bool kDropout>(std::bool_constant<kDropout>) {
      weigh_packed<kDropout>(at, scores(), scale, call_.softcap, dweights(), kept(), log_sums,
                             expected, packed_, sums_bias ? &dbias : nullptr);
    };
    if (call_.dropout.given) {
      fill_kept(call_, strip, at, kept());
      weigh_all(std::true_type());
    } else {
      weigh_all(std::false_type());
    }
    if (sums_bias) dbias.add_to(dbias_of(call_, strip, at.tile));
    if (part_.of_keys) {
      multiply_packed<Unit, true>(packed_.weights, kAttentionBlock, dout.columns, size_,
                                  kAttentionBlock, dvalues(b));
      multiply_packed<Unit, true>(packed_.dscores, kAttentionBlock, queries.columns, size_,
                                  kAttentionBlock, dkeys(b));
    }
    if (part_.of_queries) {
      multiply_packed<Unit, true>(keys_by_head_, size_, packed_.dscores_right, kAttentionBlock,
                                  kAttentionBlock, dqueries(t));
    }
  }

  void write_key_gradients(std::size_t b) {
    const KeyBlock block(call_, part_.sequence, b);
    narrow(dkeys(b), block.count, size_, call_.scale, key_rows(call_.dk, block));
    narrow(dvalues(b), block.count, size_, 1, key_rows(call_.dv, block));
  }

  const AttentionCall& call_;
  const BackwardPart& part_;
  const BackwardWorkspace& workspace_;
  const std::size_t size_;
  BFloat16* keys_;          // rows packed on the left
  BFloat16* keys_by_head_;  // columns packed on the left
  BFloat16* values_;        // rows packed on the left
  BFloat16* copy_;          // of a block
  const PackedWeights packed_;
};

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
