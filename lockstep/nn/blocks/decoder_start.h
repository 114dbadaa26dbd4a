// Where an encoder ends and its decoder begins: the norm after the encoder's last layer, whose
// result is the memory that the decoder's layers read, and the embedding of the target tokens.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/parts/embedding.h"
#include "lockstep/nn/parts/norm.h"

namespace lockstep::nn {

class DecoderStart : public Block {
 public:
  DecoderStart(std::string name, const EmbeddingOptions& embedding, const NormOptions& norm);

  std::string name() const override { return name_; }
  Shape output(const Setup& setup) const override;
  Shape memory(const Setup& setup) const override;
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass&) override {}
  void backward(const Pass& pass) override;

 private:
  // The order of the spec.
  enum Saved : std::size_t { kSpare, kTensors };

  // The tokens of the memory that this rank makes.
  Extent own_memory(const Setup& setup) const;

  std::string name_;
  EmbeddingOptions options_;
  Place next_;
  NormPart norm_;
  EmbeddingPart tables_;
};

}  // namespace lockstep::nn
