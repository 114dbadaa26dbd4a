// A layer of Gemma 2, with a norm before and behind each branch:
//
//   sum = x   + dropout(norm2(attention(norm1(x))))
//   out = sum + dropout(norm4(mlp(norm3(sum))))
//
// Its feed-forward network is gated (nn/parts/swiglu.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/nn/block.h"
#include "lockstep/nn/blocks/pre_norm_layer.h"
#include "lockstep/nn/generate/decoding.h"

namespace lockstep::nn {

class SandwichLayer : public Block, private Decoding {
 public:
  SandwichLayer(std::string name, const LlamaLayerOptions& options);

  std::string name() const override { return name_; }
  Shape output(const Setup& setup) const override;
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass& pass) override;
  void backward(const Pass& pass) override;
  const Decoding* decoding() const override { return this; }

 private:
  DecodeSpec decode_spec(const DecodeSetup& setup, const Ops& ops) const override;
  void decode(const DecodePass& at) const override;

  // The order of the spec.
  enum Saved : std::size_t { kNormed1, kAttended, kSum, kNormed3, kFed, kSpare, kBranch, kTensors };

  ops::Dropout dropout(const Pass& pass, std::string_view branch) const;
  // From what attention gave to the sum and its norm.
  void join_attention(const Pass& pass, const ops::Dropout& dropping) const;
  // From what the feed-forward network gave to the output.
  void join_feed_forward(const Pass& pass, const ops::Dropout& dropping) const;

  std::string name_;
  LlamaLayerOptions options_;
  Place next_;
  NormPart norm1_;
  SelfAttentionPart attention_;
  NormPart norm2_;
  NormPart norm3_;
  SwiGluPart mlp_;
  NormPart norm4_;
};

}  // namespace lockstep::nn
