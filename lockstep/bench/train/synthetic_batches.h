// Batches of random tokens, for timing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/nn/batch.h"
#include "lockstep/plan/model_shape.h"

namespace lockstep::bench {

// Each token has the next one as its target, BERT's a token of its own. An encoder-decoder's source
// is random tokens, too, as many as fit.
class SyntheticBatches {
 public:
  SyntheticBatches(const plan::ModelShape& model, const nn::BatchShape& shape, int count);

  std::span<const nn::Batch> all() const { return batches_; }

 private:
  std::vector<std::vector<std::int32_t>> tokens_, targets_, sources_;
  std::vector<std::int32_t> types_;
  std::vector<std::uint8_t> source_mask_;
  std::vector<nn::Batch> batches_;
};

}  // namespace lockstep::bench
