// What the attentions of a layer have in common: heads, positions, dropout, and who divides them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/nn/parts/long_rope.h"
#include "lockstep/nn/parts/part.h"

namespace lockstep::nn {

struct AttentionOptions {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_width = 0;  // 0: hidden / heads
  bool causal = true;
  bool biases = true;
  bool qkv_biases = false;  // of the first layer, where biases is false
  double dropout = 0;       // of the probabilities
  double stddev = 0.02;     // of the weights at first
  double projection_stddev = 0.02;
  bool rotary = false;
  float theta = 10000;
  ops::RotaryScaling scaling = {};
  std::optional<LongRope> long_rope = {};
  std::int64_t rotary_width = 0;  // how many elements of a head turn; 0: all
  std::int64_t window = 0;        // tokens that a causal one sees, its own and those before; 0: all
  std::optional<float> qk_norm =
      {};                        // queries and keys have an RMS norm of every head: its epsilon
  float softcap = 0;             // of the scores; 0: none
  std::int64_t scale_width = 0;  // scores are divided by its root; 0: by that of the head size
  // A bias of scores by distance, of one to itself (nn/parts/relative_bias.h), from the table with
  // this full name; empty: none.
  std::string bias_table = {};
  ops::RelativeBuckets buckets = {};
  Side side = Side::kTarget;
  TensorGroup tensor = {};  // divides the heads, of both kinds evenly

  // Of attention to that many keys, as operations have it.
  std::int64_t window_of(std::int64_t keys) const { return window < keys ? window : 0; }
  std::int64_t head_size() const { return head_width > 0 ? head_width : hidden / heads; }
  float scale() const;
  // Of rotary positions in texts of that many tokens, as operations have them.
  Tensor slowing(std::int64_t positions) const {
    return long_rope ? long_rope->factors(positions) : Tensor();
  }
  float amplitude() const { return long_rope ? long_rope->amplitude : 1; }
  std::int64_t turned_width() const { return rotary_width > 0 ? rotary_width : head_size(); }
  // Of this rank.
  std::int64_t own_heads() const { return heads / tensor.size; }
  std::int64_t own_kv_heads() const { return kv_heads / tensor.size; }
  std::int64_t query_width() const { return head_size() * own_heads(); }
  std::int64_t kv_width() const { return head_size() * own_kv_heads(); }
};

// The dropout of probabilities, different for the heads of every rank.
ops::Dropout dropout_of(const Pass& pass, const AttentionOptions& options, std::string_view purpose,
                        const ops::AttentionShape& shape);

}  // namespace lockstep::nn
