// Translation with a model that has an encoder and a decoder.
//
//   if (const auto translator = open_translator("run", plan::Precision::kF32, ops, warn)) {
//     std::cout << translator->run("twenty-three").text;
//   }
//
// Each token of the translation takes a full forward of both sentences: there is no cache.
// Sentences have at most train.seq_len tokens of the run.
#pragma once

#include <filesystem>
#include <functional>
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
  // Fills a flat buffer of f32 with the parameters.
  using Read = std::function<void(const nn::FlatParameters& flat, const Tensor& buffer)>;

  // Of a model with its tokenizer. `ops` outlives it.
  Translator(std::unique_ptr<data::Tokenizer> tokenizer, const TrainOptions& options,
             const Read& read, Ops& ops);

  // The same options give the same text. `listen` as in Generator. Throws Error(kInvalidArgument)
  // for a source without tokens, or with more than the model reads.
  Generation run(std::string_view source, std::int64_t max_new_tokens,
                 const nn::SamplingOptions& sampling, const Generator::Listen& listen = {});

 private:
  void fill_source(std::string_view source);
  // The logits after `count` tokens of the translation; tokens without text are excluded.
  std::vector<float> logits_after(std::int64_t count);

  std::unique_ptr<data::Tokenizer> tokenizer_;
  data::TranslationTokens ends_;
  std::int64_t classes_;  // ids of the model
  nn::Replica replica_;   // for one pair
  BatchMemory batch_;
};

// Of a run's folder, a checkpoint or a folder of Hugging Face transformers; nullptr where its model
// has no encoder, or where it is none of these. Throws Error(kProtocol) for one that is damaged,
// and Error(kInvalidArgument) for one without a tokenizer. `precision` is what is computed in.
std::unique_ptr<Translator> open_translator(const std::filesystem::path& path,
                                            plan::Precision precision, Ops& ops, const Warn& warn);

}  // namespace lockstep::train
