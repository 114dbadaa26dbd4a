// The first block of most models: embeds tokens, positions and types.
#pragma once

#include <optional>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/generate/decoding.h"
#include "lockstep/nn/parts/embedding.h"

namespace lockstep::nn {

class Embedding : public Block, private Decoding {
 public:
  Embedding(std::string name, const EmbeddingOptions& options);

  std::string name() const override { return name_; }
  Shape output(const Setup& setup) const override;
  Shape memory(const Setup& setup) const override;
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass&) override {}
  void backward(const Pass& pass) override;
  std::optional<SparseGradient> sparse_gradient(const Pass& pass) const override;
  // Only if it reads nothing but tokens and positions.
  const Decoding* decoding() const override;

 private:
  DecodeSpec decode_spec(const DecodeSetup& setup, const Ops& ops) const override;
  void decode(const DecodePass& at) const override;

  std::string name_;
  EmbeddingOptions options_;
  Place next_;
  EmbeddingPart tables_;
};

}  // namespace lockstep::nn
