// A layer of BERT, with its norms behind (post-norm), bidirectional:
//
//   middle = norm1(x      + dropout(attention(x)))
//   out    = norm2(middle + dropout(mlp(middle)))
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/blocks/pre_norm_layer.h"

namespace lockstep::nn {

class BertLayer : public Block {
 public:
  BertLayer(std::string name, const LayerOptions& options);

  std::string name() const override { return name_; }
  Shape output(const Setup& setup) const override;
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass& pass) override;
  void backward(const Pass& pass) override;

 private:
  // The order of the spec.
  enum Saved : std::size_t { kSum1, kMiddle, kSum2, kSpare, kDropped, kTensors };

  ops::Dropout dropout(const Pass& pass, std::string_view branch) const;

  std::string name_;
  LayerOptions options_;
  Place next_;
  SelfAttentionPart attention_;
  NormPart norm1_;
  FeedForwardPart mlp_;
  NormPart norm2_;
};

}  // namespace lockstep::nn
