// What tests of batches share: a stream to read, and everything that is in some batches.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/token_file/writer.h"
#include "lockstep/ops/arguments.h"
#include "lockstep/train/dataset/batch_source.h"
#include "tests/data/temporary_folder.h"

namespace lockstep::train::batch_contents {

inline constexpr std::int64_t kStreamVocabulary = 1009;

// The tokens 0, 1, 2, ... so that a token equals its position.
inline data::DataOptions counting_stream(const fixtures::TemporaryFolder& folder, int tokens,
                                         double validation = 0) {
  std::vector<data::TokenId> ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0);
  data::TokenWriter writer(folder / "count.tokens", {.vocabulary = kStreamVocabulary});
  writer.append(ids);
  writer.finish();
  data::DataOptions options;
  options.tokens = folder / "count.tokens";
  options.validation_fraction = validation;
  return options;
}

inline SourceSetup source_setup(Objective objective, std::int64_t batch, std::int64_t sequence,
                                std::uint64_t seed = 1) {
  return {.objective = objective,
          .shape = {.batch = batch, .sequence = sequence},
          .vocabulary = kStreamVocabulary,
          .seed = seed};
}

template <class T>
void append_elements(std::vector<double>& to, const Tensor& tensor) {
  if (tensor.elements() == 0) return;
  for (const T value : tensor.as<const T>()) to.push_back(static_cast<double>(value));
}

// Everything that is in some batches, field by field.
using Contents = std::map<std::string, std::vector<double>>;
inline void add_contents(std::span<const nn::Batch> batches, Contents& to) {
  for (const nn::Batch& batch : batches) {
    append_elements<std::int32_t>(to["tokens"], batch.tokens);
    append_elements<std::int32_t>(to["targets"], batch.targets);
    append_elements<std::int32_t>(to["types"], batch.types);
    append_elements<std::uint8_t>(to["key_mask"], batch.key_mask);
    append_elements<std::int32_t>(to["source"], batch.source);
    append_elements<std::uint8_t>(to["source_mask"], batch.source_mask);
    append_elements<float>(to["inputs"], batch.inputs);
    append_elements<float>(to["outputs"], batch.outputs);
  }
}

// The same sequences, however they are divided into calls and micro-batches.
inline void expect_one_global_batch(const Dataset& dataset, Objective objective,
                                    std::int64_t sequence, std::int64_t source_sequence = 0) {
  constexpr std::uint64_t kFirst = 13, kSequences = 24;
  const auto read = [&](std::int64_t batch, int micro_batches) {
    SourceSetup setup = source_setup(objective, batch, sequence);
    setup.shape.source_sequence = source_sequence;
    const auto source = make_batch_source(dataset, setup);
    Contents contents;
    const auto step = static_cast<std::uint64_t>(batch * micro_batches);
    for (std::uint64_t done = 0; done < kSequences; done += step) {
      add_contents(source->training(kFirst + done, micro_batches), contents);
    }
    return contents;
  };
  const Contents whole = read(24, 1);
  EXPECT_FALSE(whole.empty());
  for (const auto& [batch, micro_batches] :
       std::vector<std::pair<std::int64_t, int>>{{1, 24}, {1, 1}, {3, 2}, {4, 3}, {12, 2}}) {
    EXPECT_EQ(read(batch, micro_batches), whole) << micro_batches << " x " << batch;
  }
}

inline std::string refusal_of_source(const Dataset& dataset, const SourceSetup& setup) {
  try {
    make_batch_source(dataset, setup);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "nothing was thrown";
}

inline std::string refusal_of_data(const data::DataOptions& options,
                                   const std::filesystem::path& cache,
                                   ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    open_dataset(options, cache);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace lockstep::train::batch_contents
