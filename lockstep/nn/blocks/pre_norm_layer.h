// A layer with its norms in front (pre-norm), around whatever feed-forward network:
//
//   sum = x   + dropout(attention(norm1(x)))
//   out = sum + dropout(mlp(norm2(sum)))
//
// With a parallel residual (GPT-NeoX) both branches read x:
//
//   sum = x   + dropout(attention(norm1(x)))
//   out = sum + dropout(mlp(norm2(x)))
//
// GPT-2's has layer norms and two linear layers with GELU between; Llama's RMS norms, rotary
// positions, grouped-query attention and SwiGLU; Mixtral's is Llama's with a mixture of experts.
// The encoder of an encoder-decoder is made of GPT-2's too, bidirectional and on the source.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/generate/decoding.h"
#include "lockstep/nn/parts/experts.h"
#include "lockstep/nn/parts/feed_forward.h"
#include "lockstep/nn/parts/norm.h"
#include "lockstep/nn/parts/self_attention.h"
#include "lockstep/nn/parts/swiglu.h"

namespace lockstep::nn {

template <class FeedForward>
struct LayerOptionsWith {
  NormOptions norm;
  AttentionOptions attention;
  typename FeedForward::Options feed_forward;
  double dropout = 0;  // of both branches
  bool parallel_residual = false;
};
using LayerOptions = LayerOptionsWith<FeedForwardPart>;
using LlamaLayerOptions = LayerOptionsWith<SwiGluPart>;
using MixtralLayerOptions = LayerOptionsWith<ExpertsPart>;

template <class FeedForward>
class PreNormLayer : public Block, private Decoding {
 public:
  PreNormLayer(std::string name, const LayerOptionsWith<FeedForward>& options);

  std::string name() const override { return name_; }
  Shape output(const Setup& setup) const override;
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass& pass) override;
  void backward(const Pass& pass) override;
  // Of a causal layer.
  const Decoding* decoding() const override;

 private:
  DecodeSpec decode_spec(const DecodeSetup& setup, const Ops& ops) const override;
  void decode(const DecodePass& at) const override;

  // The order of the spec.
  enum Saved : std::size_t { kNormed1, kSum, kNormed2, kDropped, kTensors };

  ops::Dropout dropout(const Pass& pass, std::string_view branch) const;
  // sum = x + dropping(sum) and the second norm, of the sum or of x.
  void join_attention(const Pass& pass, const ops::Dropout& dropping) const;
  // From the gradients of the sum or of x (in dx, by the second norm) to that of the attention's
  // branch, which it returns.
  Tensor backward_join(const Pass& pass, const Tensor& dx) const;

  std::string name_;
  LayerOptionsWith<FeedForward> options_;
  Place next_;
  NormPart norm1_;
  SelfAttentionPart attention_;
  NormPart norm2_;
  FeedForward mlp_;
};

extern template class PreNormLayer<FeedForwardPart>;
extern template class PreNormLayer<SwiGluPart>;
extern template class PreNormLayer<ExpertsPart>;
using Gpt2Layer = PreNormLayer<FeedForwardPart>;
using LlamaLayer = PreNormLayer<SwiGluPart>;
using MixtralLayer = PreNormLayer<ExpertsPart>;

}  // namespace lockstep::nn
