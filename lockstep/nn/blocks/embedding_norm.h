// The norm after BERT's embeddings, followed by dropout. It is a separate block because its
// backward reads the gain: in one block with the embeddings, workers would have to gather these for
// backward, too.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/parts/norm.h"

namespace lockstep::nn {

class EmbeddingNorm : public Block {
 public:
  // For the block `embedding`: parameters are named "<embedding>.norm.gain" and so on, and random
  // numbers are those of the embedding.
  EmbeddingNorm(std::string embedding, const NormOptions& norm, double dropout);

  std::string name() const override { return embedding_ + "." + kNorm; }
  std::string draws_as() const override { return embedding_; }
  Shape output(const Setup& setup) const override;
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass&) override {}
  void backward(const Pass& pass) override;

 private:
  static constexpr const char* kNorm = "norm";
  // The order of the spec.
  enum Saved : std::size_t { kSpare, kTensors };

  // In place.
  void drop(const Pass& pass, const Tensor& rows) const;

  std::string embedding_;
  std::int64_t width_;
  TensorGroup tensor_;
  double dropout_;
  Place next_;
  NormPart norm_;
};

}  // namespace lockstep::nn
