// Multi-head attention of a sequence to itself: queries, keys and values by one packed linear
// layer, attention head by head, and a projection of what the heads gathered.
//
// Query heads may share key and value heads (grouped-query attention). Positions are rotary where
// asked for, of all elements of a head or of the first ones, and norms may come before them; or
// scores have a bias by distance (nn/parts/relative_bias.h). Tokens see all before them, or the
// last ones in a window. Padding that the batch masks takes no part.
//
// The ranks of a context group have some tokens each, and attend by heads
// (nn/parts/head_exchange.h) or in a ring (nn/parts/ring_attention.h).
//
// A slice of a sequence (nn/token_slice.h) attends to its own keys and those of the slices before.
// Slices run backward from the last to the first, and each adds to the gradients of all keys and
// values that it read; those of its own are complete then.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/nn/generate/decoding.h"
#include "lockstep/nn/parts/attention_options.h"
#include "lockstep/nn/parts/head_exchange.h"
#include "lockstep/nn/parts/linear.h"
#include "lockstep/nn/parts/query_key_norm.h"
#include "lockstep/nn/parts/relative_bias.h"
#include "lockstep/nn/parts/ring_attention.h"

namespace lockstep::nn {

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
  enum Saved : std::size_t {
    kPacked,  // of the whole sequence, also for a slice
    kAttended,
    kLogSum,
    kDPacked,
    kDAttended,        // where heads are wider than the workspace
    kDKeysValues,      // with slices: f32 sums, of the whole sequence
    kDSomeKeysValues,  // with slices: what one of them adds
    kTensors
  };

  std::int64_t packed_width() const { return qkv_.out(); }
  ops::AttentionShape shape(const Setup& setup) const;
  ops::Dropout dropout(const Pass& pass) const;
  // The attention itself, of packed rows, and its gradient.
  void attend(const Pass& pass, const Tensor& packed) const;
  void attend_backward(const Pass& pass, const Tensor& packed, const Tensor& dattended,
                       const Tensor& dpacked) const;
  // The rows of this slice, and those of all keys that it reads, among those of its sequence.
  static Tensor own_rows(const Pass& pass, const Tensor& all);
  static Tensor seen_rows(const Pass& pass, const Tensor& all);
  Tensor seen_mask(const Pass& pass) const;
  void attend_slice_backward(const Pass& pass, const Tensor& dattended,
                             const Tensor& dpacked) const;
  // All heads of packed rows, whatever of them the rank has.
  void rotate(const Pass& pass, const Tensor& packed, bool backward) const;
  // Rows whose positions follow each other from `first` on, and again after `sequence` rows.
  struct Positions {
    std::int64_t sequence = 0;
    std::int64_t first = 0;
    std::int64_t most = 0;  // of the text or, where it grows, that it may have
  };
  void rotate(const Pass& pass, const ops::Heads& x, std::int64_t heads, const Positions& positions,
              bool backward) const;
  ops::AttentionShape decode_shape(std::int64_t rows, std::int64_t keys, DType dtype) const;
  // Of rows of all heads, or of those that a rank attends with.
  std::int64_t share(const Tensor& packed, std::int64_t width) const {
    return width * packed.shape()[1] / packed_width();
  }
  ops::Heads queries(const Tensor& packed) const { return {packed, 0}; }
  ops::Heads keys(const Tensor& packed) const {
    return {packed, share(packed, options_.query_width())};
  }
  ops::Heads values(const Tensor& packed) const {
    return {packed, share(packed, options_.query_width() + options_.kv_width())};
  }

  AttentionOptions options_;
  LinearPart qkv_;
  std::optional<QueryKeyNormPart> norms_;
  std::optional<RelativeBiasPart> bias_;
  LinearPart projection_;
  HeadExchangePart by_heads_;
  RingAttentionPart in_ring_;
};

}  // namespace lockstep::nn
