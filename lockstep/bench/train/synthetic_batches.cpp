#include "lockstep/bench/train/synthetic_batches.h"

#include "lockstep/base/math/counter_rng.h"

namespace lockstep::bench {

SyntheticBatches::SyntheticBatches(const plan::ModelShape& model, const nn::BatchShape& shape,
                                   int count)
    : types_(static_cast<std::size_t>(shape.tokens())),
      source_mask_(static_cast<std::size_t>(shape.source_tokens()), std::uint8_t{1}) {
  const auto sequence = static_cast<std::uint64_t>(shape.sequence);
  for (int i = 0; i < count; ++i) {
    std::vector<std::int32_t>& tokens = tokens_.emplace_back();
    std::vector<std::int32_t>& targets = targets_.emplace_back();
    for (std::uint64_t row = 0; row < static_cast<std::uint64_t>(shape.batch); ++row) {
      const auto token = [&](std::uint64_t at) {
        const std::uint32_t word =
            random_word(1, static_cast<std::uint64_t>(i), row * (sequence + 1) + at);
        return static_cast<std::int32_t>(word % model.vocabulary);
      };
      for (std::uint64_t at = 0; at < sequence; ++at) {
        tokens.push_back(token(at));
        targets.push_back(token(at + 1));
      }
    }
  }
  for (int i = 0; i < count; ++i) {
    std::vector<std::int32_t>& source = sources_.emplace_back();
    for (std::int64_t at = 0; at < shape.source_tokens(); ++at) {
      const std::uint32_t word =
          random_word(2, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(at));
      source.push_back(static_cast<std::int32_t>(word % model.vocabulary));
    }
  }
  const Shape rows{shape.batch, shape.sequence};
  const Shape source_rows{shape.batch, shape.source_sequence};
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    nn::Batch& batch = batches_.emplace_back();
    batch.shape = shape;
    batch.tokens = tensor_of(std::span(tokens_[i]), rows);
    batch.targets = tensor_of(std::span(targets_[i]), rows);
    batch.types = tensor_of(std::span(types_), rows);
    if (shape.source_sequence > 0) {
      batch.source = tensor_of(std::span(sources_[i]), source_rows);
      batch.source_mask = tensor_of(std::span(source_mask_), source_rows);
    }
  }
}

}  // namespace lockstep::bench
