// The head of a language model: a norm, logits, and their cross-entropy with the targets.
//
// In training all its work is done in backward: losses and gradients together, with logits for one
// chunk of tokens at a time (nn/parts/classifier.h).
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/generate/decoding.h"
#include "lockstep/nn/parts/classifier.h"
#include "lockstep/nn/parts/norm.h"

namespace lockstep::nn {

// The targets as i32 [tokens]. Throws Error(kInvalidArgument) if they have another shape, or are
// missing although losses are needed.
Tensor targets_of(const Pass& pass, std::string_view block);

class LanguageHead : public Block, private Decoding {
 public:
  // `counted_experts`: of models that balance experts (nn/parts/expert_counts.h).
  LanguageHead(std::string name, const NormOptions& norm, const ClassifierOptions& classifier,
               std::int64_t counted_experts = 0);

  std::string name() const override { return name_; }
  Shape output(const Setup&) const override { return {0}; }
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass&) override {}
  void backward(const Pass& pass) override;
  const Decoding* decoding() const override { return this; }

 private:
  DecodeSpec decode_spec(const DecodeSetup& setup, const Ops& ops) const override;
  void decode(const DecodePass& at) const override;

  // The order of the spec.
  enum Saved : std::size_t { kNormed, kTensors };

  // Of all layers, with the number of targets.
  void hand_back_counts(const Pass& pass) const;

  std::string name_;
  std::int64_t hidden_;
  TensorGroup tensor_;
  std::int64_t counted_experts_;
  Place next_;
  NormPart norm_;
  ClassifierPart classifier_;
};

}  // namespace lockstep::nn
