// A pre-norm layer whose experts are divided over the ranks of an expert group
// (nn/expert_group.h), in two blocks:
//
//   "layer.0"        sum = x   + dropout(attention(norm1(x)))
//   "layer.0.mlp"    out = sum + dropout(mlp(norm2(sum)))
//
// All parameters of the first are held by all workers, and those of the second are the experts of
// this rank alone. So the first also holds the gain of norm2 and the router, to which the second is
// tied. Together they have the parameters of PreNormLayer, by the same names, and compute the same.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/blocks/pre_norm_layer.h"

namespace lockstep::nn {

class AttentionHalf : public Block {
 public:
  AttentionHalf(std::string name, const MixtralLayerOptions& options);

  std::string name() const override { return name_; }
  Shape output(const Setup& setup) const override;
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass& pass) override;
  void backward(const Pass& pass) override;

 private:
  // The order of the spec.
  enum Held : std::size_t { kGain2, kRouter, kParameters };
  enum Saved : std::size_t { kNormed, kSpare, kWorkspace, kDropped, kTensors };

  std::string name_;
  MixtralLayerOptions options_;
  Place next_;
  NormPart norm_;
  SelfAttentionPart attention_;
};

class ExpertsHalf : public Block {
 public:
  // `layer` is the name of the first half.
  ExpertsHalf(std::string layer, const MixtralLayerOptions& options);

  std::string name() const override { return layer_ + ".mlp"; }
  std::string draws_as() const override { return layer_; }
  Shape output(const Setup& setup) const override;
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass& pass) override;
  void backward(const Pass& pass) override;

 private:
  // The order of the spec.
  enum Saved : std::size_t { kNormed, kDropped, kTensors };

  std::string layer_;
  MixtralLayerOptions options_;
  Place next_;
  NormPart norm_;
  ExpertsPart mlp_;
};

}  // namespace lockstep::nn
