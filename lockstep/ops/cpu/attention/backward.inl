// Gradients of attention for one key head of one sequence. Part of attention's kernels.
//
// With p the probability, dp = (dout . value) * kept and expected = the sum of p dp over the keys,
// which is dout . out:
//
//   dvalue[key] = sum over queries of p kept dout        dscore = p (dp - expected)
//   dkey[key]   = sum over queries of dscore scale query dquery = scale sum over keys of dscore key
//
// With a soft cap dscore is also multiplied by its slope at the score.
#pragma once

#include <type_traits>

#include "lockstep/base/simd/softmax.inl"
#include "lockstep/ops/cpu/attention/dropout.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

// What a score and its dprobability become: the probability after dropout, and the dscore. Of some
// vectors at once, so that none waits for another.
template <bool kDropout, bool kCapped, std::size_t kVectors>
[[gnu::always_inline]] inline void weigh_vectors(float* score, float* dscore, const float* kept,
                                                 const float* log_sums, const float* expected,
                                                 float softcap) {
  Floats probability[kVectors], dprobability[kVectors], slope[kVectors];
#pragma GCC unroll 4
  for (std::size_t v = 0; v < kVectors; ++v) {
    probability[v] = exp_of_score(load(score + v * kLanes) - load(log_sums + v * kLanes));
    dprobability[v] = load(dscore + v * kLanes);
    if (kCapped) slope[v] = soft_cap_slope(load(score + v * kLanes), softcap);
  }
#pragma GCC unroll 4
  for (std::size_t v = 0; v < kVectors; ++v) {
    const Floats factor = kDropout ? load(kept + v * kLanes) : splat(1);
    const Floats dp = kDropout ? dprobability[v] * factor : dprobability[v];
    store(score + v * kLanes, kDropout ? probability[v] * factor : probability[v]);
    const Floats dcapped = probability[v] * (dp - load(expected + v * kLanes));
    store(dscore + v * kLanes, kCapped ? dcapped * slope[v] : dcapped);
  }
}

template <bool kDropout, bool kCapped>
void weigh(const Meeting& at, const Matrix& scores, const Matrix& dscores, const Matrix& kept,
           const float* log_sums, const float* expected, float softcap) {
  constexpr std::size_t kVectors = 2;
  const std::size_t end = padded(at.tile.count);
  for (std::size_t j = 0; j < at.block.count; ++j) {
    float* score = scores.row(j);
    float* dscore = dscores.row(j);
    const float* kept_row = kept.row(j);
    std::size_t i = first_column(at.sight, round_down(j, kPatchRows));
    for (; i + kVectors * kLanes <= end; i += kVectors * kLanes) {
      weigh_vectors<kDropout, kCapped, kVectors>(score + i, dscore + i, kept_row + i, log_sums + i,
                                                 expected + i, softcap);
    }
    for (; i < end; i += kLanes) {
      weigh_vectors<kDropout, kCapped, 1>(score + i, dscore + i, kept_row + i, log_sums + i,
                                          expected + i, softcap);
    }
  }
}

template <class T>
class BackwardHead {
 public:
  BackwardHead(const AttentionCall& call, const BackwardPart& part,
               const BackwardWorkspace& workspace)
      : call_(call), part_(part), workspace_(workspace) {}

  void run() {
    const std::size_t blocks = (call_.keys + kAttentionBlock - 1) / kAttentionBlock;
    if (part_.of_keys) {
      for (std::size_t b = 0; b < blocks; ++b) {
        if (!part_.key_blocks.has(b)) continue;
        clear(dkeys(b), kAttentionBlock);
        clear(dvalues(b), kAttentionBlock);
      }
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
    if (part_.of_keys) {
      for (std::size_t b = 0; b < blocks; ++b) {
        if (part_.key_blocks.has(b)) write_key_gradients(b);
      }
    }
  }

 private:
  Matrix of_tile(float* data, std::size_t t) const {
    return {data + t * kAttentionBlock * workspace_.head, workspace_.head};
  }
  Matrix of_tile_transposed(float* data, std::size_t t) const {
    return {data + t * kAttentionBlock * workspace_.head, kAttentionBlock};
  }
  Matrix keys() const { return {workspace_.keys, workspace_.head}; }
  Matrix values() const { return {workspace_.values, workspace_.head}; }
  Matrix scores() const { return {workspace_.scores, kAttentionBlock}; }
  Matrix dscores() const { return {workspace_.dscores, kAttentionBlock}; }
  Matrix kept() const { return {workspace_.kept, kAttentionBlock}; }
  Matrix dkeys(std::size_t b) const { return of_tile(workspace_.dkeys, b); }
  Matrix dvalues(std::size_t b) const { return of_tile(workspace_.dvalues, b); }

  HeadPart<T> key_rows(const HeadRows& rows, const KeyBlock& block) const {
    return {rows, part_.key_head, call_.head_size, part_.sequence * call_.keys + block.first};
  }
  HeadPart<T> query_rows(const HeadRows& rows, const QueryStrip& strip, const Tile& tile) const {
    return {rows, strip.head, call_.head_size, strip.sequence * call_.queries + tile.first};
  }

  void meet_strip(const QueryStrip& strip) {
    for (std::size_t t = 0; t < tiles_of(strip); ++t) begin(strip, t);
    const std::size_t blocks = key_blocks(call_, strip.first + strip.count);
    for (std::size_t b = first_key_block(call_, strip.first); b < blocks; ++b) {
      const KeyBlock block(call_, part_.sequence, b);
      if (!part_.key_blocks.has(b) || !block.any()) continue;
      widen(key_rows(call_.k, block), block.count, call_.head_size, 1, block.mask, keys());
      widen(key_rows(call_.v, block), block.count, call_.head_size, 1, block.mask, values());
      for (std::size_t t = 0; t < tiles_of(strip); ++t) {
        const Tile tile(strip, t);
        const Meeting at{tile, block, Sight(call_, tile, block)};
        if (b + 1 < blocks) prefetch_block(b + 1, tiles_of(strip), t);
        if (at.sight.any(tile)) meet(strip, at, t, b);
      }
    }
    if (!part_.of_queries) return;
    for (std::size_t t = 0; t < tiles_of(strip); ++t) {
      const Tile tile(strip, t);
      narrow(of_tile(workspace_.dqueries, t), tile.count, call_.head_size, call_.scale,
             query_rows(call_.dq, strip, tile));
    }
  }

  void prefetch_block(std::size_t b, std::size_t tiles, std::size_t t) const {
    const KeyBlock block(call_, part_.sequence, b);
    prefetch(key_rows(call_.k, block), block.count, call_.head_size, tiles, t);
    prefetch(key_rows(call_.v, block), block.count, call_.head_size, tiles, t);
  }

  void begin(const QueryStrip& strip, std::size_t t) {
    const Tile tile(strip, t);
    const Matrix queries = of_tile(workspace_.queries, t);
    const Matrix dout = of_tile(workspace_.dout, t);
    const Matrix out = of_tile(workspace_.dqueries, t);  // until it is needed
    const std::size_t size = call_.head_size;
    widen(query_rows(call_.q, strip, tile), tile.count, size, call_.scale, nullptr, queries);
    widen(query_rows(call_.dout, strip, tile), tile.count, size, 1, nullptr, dout);
    widen(query_rows(call_.out, strip, tile), tile.count, size, 1, nullptr, out);
    transpose(queries, tile.count, of_tile_transposed(workspace_.queries_transposed, t));
    transpose(dout, tile.count, of_tile_transposed(workspace_.dout_transposed, t));

    clear_bias_gradient(call_, part_, strip, tile);
    float* log_sums = workspace_.log_sums + t * kAttentionBlock;
    float* expected = workspace_.expected + t * kAttentionBlock;
    const float* from =
        call_.log_sum + (strip.sequence * call_.heads + strip.head) * call_.queries + tile.first;
    for (std::size_t i = 0; i < padded(tile.count); ++i) {
      Floats sum = {};
      for (std::size_t c = 0; c < workspace_.head; c += kLanes) {
        sum += load(dout.row(i) + c) * load(out.row(i) + c);
      }
      expected[i] = sum_of_lanes(sum);
      // A query without keys, or none at all, has no probabilities: exp(score - infinity).
      const bool sees = i < tile.count && from[i] != -kInfinity;
      log_sums[i] = sees ? from[i] : kInfinity;
    }
    clear(out, padded(tile.count));
  }

  void meet(const QueryStrip& strip, const Meeting& at, std::size_t t, std::size_t b) {
    const float* log_sums = workspace_.log_sums + t * kAttentionBlock;
    const float* expected = workspace_.expected + t * kAttentionBlock;
    key_by_query(at, keys(), of_tile_transposed(workspace_.queries_transposed, t), scores());
    key_by_query(at, values(), of_tile_transposed(workspace_.dout_transposed, t), dscores());
    cap_scores(at, scores(), call_.softcap);
    add_bias(call_, strip.head, at, scores());
    hide(at, scores());
    const auto weigh_all = [&]<bool kDropout>(std::bool_constant<kDropout>) {
      const auto weigh_them = call_.softcap > 0 ? weigh<kDropout, true> : weigh<kDropout, false>;
      weigh_them(at, scores(), dscores(), kept(), log_sums, expected, call_.softcap);
    };
    if (call_.dropout.given) {
      fill_kept(call_, strip, at, kept());
      weigh_all(std::true_type());
    } else {
      weigh_all(std::false_type());
    }
    if (part_.of_keys) {
      add_over_queries(at, scores(), of_tile(workspace_.dout, t), dvalues(b));
      add_over_queries(at, dscores(), of_tile(workspace_.queries, t), dkeys(b));
    }
    if (!part_.of_queries) return;
    add_over_keys(at, dscores(), keys(), of_tile(workspace_.dqueries, t));
    if (call_.distances > 0) add_bias_gradient(at, dbias_of(call_, strip, at.tile));
  }

  void add_bias_gradient(const Meeting& at, float* dbias) const {
    DistanceStrip sums(call_, at);
    sums.clear();
    const std::size_t end = padded(at.tile.count);
    for (std::size_t j = 0; j < at.block.count; ++j) {
      const float* dscore = dscores().row(j);
      float* sum = sums.of_key(j);
      std::size_t i = first_column(at.sight, round_down(j, kPatchRows));
      for (; i < end; i += kLanes) store(sum + i, load(sum + i) + load(dscore + i));
    }
    sums.add_to(dbias);
  }

  void write_key_gradients(std::size_t b) {
    const KeyBlock block(call_, part_.sequence, b);
    narrow(dkeys(b), block.count, call_.head_size, 1, key_rows(call_.dk, block));
    narrow(dvalues(b), block.count, call_.head_size, 1, key_rows(call_.dv, block));
  }

  const AttentionCall& call_;
  const BackwardPart& part_;
  const BackwardWorkspace& workspace_;
};

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
