// A layer of the decoder in an encoder-decoder, pre-norm:
//
//   sum1 = x    + dropout(causal attention(norm1(x)))
//   sum2 = sum1 + dropout(attention to the encoder's memory(norm2(sum1)))
//   out  = sum2 + dropout(mlp(norm3(sum2)))
//
// T5's may have a gated feed-forward network.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/blocks/pre_norm_layer.h"
#include "lockstep/nn/parts/cross_attention.h"

namespace lockstep::nn {

template <class FeedForward>
class DecoderLayer : public Block {
 public:
  DecoderLayer(std::string name, const LayerOptionsWith<FeedForward>& options);

  std::string name() const override { return name_; }
  Shape output(const Setup& setup) const override;
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass& pass) override;
  void backward(const Pass& pass) override;

 private:
  // The order of the spec.
  enum Saved : std::size_t { kNormed1, kSum1, kNormed2, kSum2, kNormed3, kDropped, kTensors };

  ops::Dropout dropout(const Pass& pass, std::string_view branch) const;

  std::string name_;
  LayerOptionsWith<FeedForward> options_;
  Place next_;
  NormPart norm1_;
  SelfAttentionPart attention_;
  NormPart norm2_;
  CrossAttentionPart cross_;
  NormPart norm3_;
  FeedForward mlp_;
};

extern template class DecoderLayer<FeedForwardPart>;
extern template class DecoderLayer<SwiGluPart>;

}  // namespace lockstep::nn
