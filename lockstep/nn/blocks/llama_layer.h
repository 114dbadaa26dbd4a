// A layer of Llama: as GPT-2's, with RMS norms, rotary positions, grouped-query attention and
// SwiGLU; without dropout.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/decoding.h"
#include "lockstep/nn/parts/norm.h"
#include "lockstep/nn/parts/self_attention.h"
#include "lockstep/nn/parts/swiglu.h"

namespace lockstep::nn {

struct LlamaLayerOptions {
  NormOptions norm;
  AttentionOptions attention;
  SwiGluOptions feed_forward;
};

class LlamaLayer : public Block, private Decoding {
 public:
  LlamaLayer(std::string name, const LlamaLayerOptions& options);

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
  enum Saved : std::size_t { kNormed1, kSum, kNormed2, kTensors };

  std::string name_;
  LlamaLayerOptions options_;
  Place next_;
  NormPart norm1_;
  SelfAttentionPart attention_;
  NormPart norm2_;
  SwiGluPart mlp_;
};

}  // namespace lockstep::nn
