// A tiny language model and sequences to train it on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/nn/batch.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

inline constexpr int kVocabulary = 29;

inline TrainOptions tiny_options(plan::Precision precision = plan::Precision::kF32) {
  TrainOptions options;
  options.model.layers = 2;
  options.model.hidden = 16;
  options.model.heads = 2;
  options.model.vocabulary = kVocabulary;
  options.model.positions = 8;
  options.batch = {.sequence = 7, .micro = 4, .accumulation = 1};
  options.precision = precision;
  options.schedule.learning_rate = 1e-2;
  return options;
}

// Sequences of random tokens, each of which has the next one as its target.
class Sequences {
 public:
  Sequences(std::int64_t count, std::int64_t length) : count_(count), length_(length) {
    for (std::int64_t i = 0; i < count * length; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      tokens_.push_back(static_cast<std::int32_t>(random_word(3, 0, at) % kVocabulary));
      targets_.push_back(static_cast<std::int32_t>(random_word(3, 1, at) % kVocabulary));
    }
    targets_[1] = ops::kNoTarget;
  }

  // In micro-batches of `micro` sequences.
  std::vector<nn::Batch> batches(std::int64_t micro) {
    std::vector<nn::Batch> result;
    const Tensor tokens = tensor_of(std::span(tokens_), {count_, length_});
    const Tensor targets = tensor_of(std::span(targets_), {count_, length_});
    for (std::int64_t first = 0; first < count_; first += micro) {
      nn::Batch batch;
      batch.shape = {.batch = micro, .sequence = length_};
      batch.tokens = tokens.slice(first, micro);
      batch.targets = targets.slice(first, micro);
      result.push_back(batch);
    }
    return result;
  }

 private:
  std::int64_t count_, length_;
  std::vector<std::int32_t> tokens_, targets_;
};

}  // namespace lockstep::train
