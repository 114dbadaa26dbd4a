// A layer of GPT-2, with its norms in front (pre-norm):
//
//   sum = x   + dropout(attention(norm1(x)))
//   out = sum + dropout(mlp(norm2(sum)))
//
// The encoder of an encoder-decoder is made of it too, bidirectional and on the source.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/decoding.h"
#include "lockstep/nn/parts/feed_forward.h"
#include "lockstep/nn/parts/norm.h"
#include "lockstep/nn/parts/self_attention.h"

namespace lockstep::nn {

struct LayerOptions {
  NormOptions norm;
  AttentionOptions attention;
  FeedForwardOptions feed_forward;
  double dropout = 0;  // of both branches
};

class Gpt2Layer : public Block, private Decoding {
 public:
  Gpt2Layer(std::string name, const LayerOptions& options);

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

  std::string name_;
  LayerOptions options_;
  Place next_;
  NormPart norm1_;
  SelfAttentionPart attention_;
  NormPart norm2_;
  FeedForwardPart mlp_;
};

}  // namespace lockstep::nn
