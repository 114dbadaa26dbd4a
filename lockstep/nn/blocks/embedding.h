// The first block of most models: rows from token numbers, positions and types. BERT's has a norm
// behind, with dropout after that instead of before.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/decoding.h"
#include "lockstep/nn/parts/embedding.h"
#include "lockstep/nn/parts/norm.h"

namespace lockstep::nn {

class Embedding : public Block, private Decoding {
 public:
  Embedding(std::string name, const EmbeddingOptions& options,
            const std::optional<NormOptions>& norm = std::nullopt);

  std::string name() const override { return name_; }
  Shape output(const Setup& setup) const override;
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass& pass) override;
  void backward(const Pass& pass) override;
  std::optional<RowGradient> row_gradient(const Pass& pass) const override;
  // Where tokens and positions are all that it reads.
  const Decoding* decoding() const override;

 private:
  DecodeSpec decode_spec(const DecodeSetup& setup, const Ops& ops) const override;
  void decode(const DecodePass& at) const override;

  // The order of the spec.
  enum Saved : std::size_t { kSum, kSpare, kTensors };

  ops::Dropout dropout(const Pass& pass) const;  // behind the norm

  std::string name_;
  EmbeddingOptions options_;
  Place next_;
  EmbeddingPart tables_;
  std::optional<NormPart> norm_;
};

}  // namespace lockstep::nn
