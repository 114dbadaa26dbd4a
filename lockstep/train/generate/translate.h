// Sentences in another language, as a model of the encoder-decoder family writes them.
//
//   if (const auto translator = open_translator("run", plan::Precision::kF32, ops, warn)) {
//     std::cout << translator->run("twenty-three").text;
//   }
//
// A token of the translation is a forward of both sentences, as training has it: there is no cache.
// Sentences are as long as those of the run's training (train.seq_len) at most.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/data/text/pairs.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/nn/generate/sampling.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/dataset/sequence_source.h"
#include "lockstep/train/generate/generate.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

class Translator {
 public:
  // Of a checkpoint, with its model and its tokenizer. `ops` outlives it.
  Translator(const Checkpoint& checkpoint, const TrainOptions& options, Ops& ops);

  // The same options give the same text. `listen` as in Generator. Throws Error(kInvalidArgument)
  // for a source without tokens, or with more than the model reads.
  Generation run(std::string_view source, std::int64_t max_new_tokens,
                 const nn::SamplingOptions& sampling, const Generator::Listen& listen = {});

 private:
  void fill_source(std::string_view source);
  // Of what follows so many tokens of the translation; those that have no text cannot.
  std::vector<float> logits_after(std::int64_t count);

  std::unique_ptr<data::Tokenizer> tokenizer_;
  data::TranslationTokens ends_;
  std::int64_t classes_;  // ids of the model
  nn::Replica replica_;   // for one pair
  BatchMemory batch_;
};

// Of a run's folder or a checkpoint; nullptr where that is of another family, or neither. Throws
// Error(kProtocol) for one that is damaged. `precision` is what is computed in.
std::unique_ptr<Translator> open_translator(const std::filesystem::path& path,
                                            plan::Precision precision, Ops& ops, const Warn& warn);

}  // namespace lockstep::train
