// Batches of random tokens, for timing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/nn/batch.h"
#include "lockstep/plan/model_shape.h"

namespace lockstep::bench {

// Each token has the next one as its target, BERT's a token of its own.
class SyntheticBatches {
 public:
  SyntheticBatches(const plan::ModelShape& model, const nn::BatchShape& shape, int count);

  std::span<const nn::Batch> all() const { return batches_; }

 private:
  std::vector<std::vector<std::int32_t>> tokens_, targets_;
  std::vector<std::int32_t> types_;
  std::vector<nn::Batch> batches_;
};

}  // namespace lockstep::bench
