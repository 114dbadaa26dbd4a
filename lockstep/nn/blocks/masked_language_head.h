// BERT's head for masked tokens: a dense layer with GELU, a norm, logits by the token embedding
// plus a bias, and their cross-entropy where a token was masked. Rows without a target cost as much
// as those with one. In training all its work is done in backward, as LanguageHead's.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/parts/classifier.h"
#include "lockstep/nn/parts/linear.h"
#include "lockstep/nn/parts/norm.h"

namespace lockstep::nn {

class MaskedLanguageHead : public Block {
 public:
  MaskedLanguageHead(std::string name, const LinearOptions& dense, const NormOptions& norm,
                     const ClassifierOptions& classifier);

  std::string name() const override { return name_; }
  Shape output(const Setup&) const override { return {0}; }
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass&) override {}
  void backward(const Pass& pass) override;

 private:
  // The order of the spec.
  enum Saved : std::size_t { kActive, kDerivative, kNormed, kAllTokens, kTensors };

  // The input, of all tokens: the ranks of a tensor group compute what is before the classifier
  // alike.
  Tensor input(const Pass& pass) const;
  // Computes the input of the classifier.
  void transform(const Pass& pass, const Tensor& x) const;

  std::string name_;
  TensorGroup stream_;  // whose tokens come in
  Place next_;
  LinearPart dense_;
  NormPart norm_;
  ClassifierPart classifier_;
};

}  // namespace lockstep::nn
