// Multi-head attention of a sequence to itself: queries, keys and values by one packed linear
// layer, attention head by head, and a projection of what the heads gathered.
//
// Query heads may share key and value heads (grouped-query attention). Positions are rotary where
// asked for. Padding that the batch masks takes no part.
#pragma once

#include <cstddef>

#include "lockstep/nn/generate/decoding.h"
#include "lockstep/nn/parts/linear.h"

namespace lockstep::nn {

struct AttentionOptions {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  bool causal = true;
  bool biases = true;
  double dropout = 0;    // of the probabilities
  double stddev = 0.02;  // of the weights at first
  double projection_stddev = 0.02;
  bool rotary = false;
  float theta = 10000;
  Side side = Side::kTarget;
  TensorGroup tensor = {};  // divides the heads, of both kinds evenly

  std::int64_t head_size() const { return hidden / heads; }
  // Of this rank.
  std::int64_t own_heads() const { return heads / tensor.size; }
  std::int64_t own_kv_heads() const { return kv_heads / tensor.size; }
  std::int64_t query_width() const { return head_size() * own_heads(); }
  std::int64_t kv_width() const { return head_size() * own_kv_heads(); }
};

// The dropout of probabilities, different for the heads of every rank.
ops::Dropout dropout_of(const Pass& pass, const AttentionOptions& options, std::string_view purpose,
                        std::int64_t queries, std::int64_t keys);

// 1 / sqrt(head_size)
float attention_scale(std::int64_t head_size);

class SelfAttentionPart : public Part {
 public:
  SelfAttentionPart(Place& next, const std::string& name, const AttentionOptions& options);

  // Backward will be handed spent memory [tokens, spent_width]: the gradient of the packed rows is
  // made there, or where that is too narrow, in memory of its own.
  void declare(Declaration& declaration, std::int64_t spent_width) const;

  void forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  // The same for the next tokens of a text, or for one token of each of several texts. The cache,
  // [batch, positions, 2 kv_width] as declared by declare_cache(), holds the keys and values of all
  // earlier tokens, which are read in place.
  TensorSpec declare_cache(const DecodeSetup& setup) const;
  std::size_t decode_scratch(const DecodeSetup& setup, const Ops& ops) const;
  void decode(const DecodePass& at, const Tensor& cache, const Tensor& x, const Tensor& y) const;
  // From dy to the gradient of the packed queries, keys and values, which it returns. `workspace`
  // is memory [tokens, hidden] to work in, `spent` that of declare().
  Tensor backward(const Pass& pass, const Tensor& dy, const Tensor& workspace,
                  const Tensor& spent) const;
  // The layer that packs them; its backward continues to the gradient of x.
  const LinearPart& packing() const { return qkv_; }

 private:
  // The order of the spec.
  enum Saved : std::size_t { kPacked, kAttended, kLogSum, kDPacked, kTensors };

  std::int64_t packed_width() const { return qkv_.out(); }
  ops::AttentionShape shape(const Setup& setup) const;
  ops::Dropout dropout(const Pass& pass) const;
  void rotate(const Pass& pass, const Tensor& packed, bool backward) const;
  void rotate(const Pass& pass, const ops::Heads& x, std::int64_t heads, std::int64_t position,
              bool backward) const;
  ops::AttentionShape decode_shape(std::int64_t rows, std::int64_t keys, DType dtype) const;
  ops::Heads queries(const Tensor& packed) const { return {packed, 0}; }
  ops::Heads keys(const Tensor& packed) const { return {packed, options_.query_width()}; }
  ops::Heads values(const Tensor& packed) const {
    return {packed, options_.query_width() + options_.kv_width()};
  }

  AttentionOptions options_;
  LinearPart qkv_;
  LinearPart projection_;
};

}  // namespace lockstep::nn
