// The training and validation batches of a run.
//
//   Dataset dataset = open_dataset(options.data, run_folder);     // tokenises on first use
//   auto source = make_batch_source(dataset, {objective, shape, vocabulary, seed});
//   trainer.step(source->training(step * sequences_per_step, micro_batches));
//
// Sequences of a run are numbered 0, 1, ... through all of its steps. What sequence i holds is a
// pure function of the data, the seed and i: in each epoch every window of the data is used once,
// in a different order; the same holds for masks. So a resumed run reads the same data, and any
// number of ranks has the same global batch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/options.h"
#include "lockstep/data/token_file/token_file.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/nn/batch.h"

namespace lockstep::train {

enum class Objective : std::uint8_t {
  kNextToken,    // gpt2, llama
  kMaskedToken,  // bert: of mask_fraction of the tokens 80 % become the mask token, 10 % another
                 // one, 10 % stay; only these have targets. A tokenizer that has no mask token
                 // lends the id behind its last
  kTranslate,    // encoder-decoder: data.pairs
  kRegress,      // the linear model: data.table
};

// The data of a run, opened. Move-only.
struct Dataset {
  std::shared_ptr<const data::Tokenizer> tokenizer;  // nullptr: token files without one, tables
  std::optional<data::TokenFile> training;
  std::string text;                           // data.text, where `training` was made of it
  std::optional<data::TokenFile> validation;  // absent: the end of the training data is held back
  // Of data.mixture: what each file would be alone, with its weight; `training` and `validation`
  // are absent then.
  std::vector<Dataset> mixture;
  double weight = 0;
  // Of data.pairs: ids of both sides, in order.
  struct Pair {
    std::vector<data::TokenId> source;
    std::vector<data::TokenId> target;
  };
  std::vector<Pair> pairs;
  // Of data.table: rows of features and one output, scaled to mean 0 and standard deviation 1.
  std::int64_t features = 0;
  std::vector<float> table;
  double validation_fraction = 0;
  double mask_fraction = 0.15;
  // All tokens or pairs of the training data are what validation() has, however few they are, and
  // nothing is trained on: for evaluations (train/evaluate/evaluate.h).
  bool validates_all = false;

  // The minimal vocabulary of a model: the tokenizer's, else the file's; 0 if unknown.
  std::int64_t vocabulary() const;
};

// Where the token files of texts are kept, with the tokenizer that made them as tokenizer.json.
struct CacheFolders {
  std::vector<std::filesystem::path> found_in;  // looked into, in this order
  std::filesystem::path made_in;                // new ones go there; made where missing

  CacheFolders(std::filesystem::path one) : found_in{one}, made_in(std::move(one)) {}
  CacheFolders(std::vector<std::filesystem::path> found, std::filesystem::path made)
      : found_in(std::move(found)), made_in(std::move(made)) {}
};

// Text is tokenised into `cache` once, and again only when text or tokenizer have changed.
// `progress` is called during long work. `of_model` is the tokenizer that the model's parameters
// were trained with, if any; it is used if the options name none. Throws Error(kInvalidArgument),
// with the file, unless exactly one kind of data is given and it is not empty.
Dataset open_dataset(const data::DataOptions& options, const CacheFolders& cache,
                     const std::function<void(std::string_view)>& progress = {},
                     const std::shared_ptr<const data::Tokenizer>& of_model = nullptr);

struct SourceSetup {
  Objective objective = Objective::kNextToken;
  nn::BatchShape shape;         // of a micro-batch
  std::int64_t vocabulary = 0;  // the model's: an id that is not below it is an error
  std::uint64_t seed = 0;
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Sequences of training that make one epoch.
  virtual std::uint64_t sequences() const = 0;
  // Sequences that are held back for validation, and how many of them it takes: all, or the first
  // ones up to a limit.
  virtual std::uint64_t held_back() const = 0;
  virtual std::uint64_t validated() const = 0;
  virtual void limit_validation(std::uint64_t sequences) = 0;
  // Micro-batches of those that it takes; 0: none.
  virtual std::uint64_t validation_batches() const = 0;
  // A sentence about unused data, for the user; empty: all data is used.
  virtual std::string left_out() const { return ""; }

  // Micro-batches of the sequences first, first + 1, ... They hold until the next call.
  virtual std::span<const nn::Batch> training(std::uint64_t first, int micro_batches) = 0;
  // Always the same ones; held back from training.
  virtual nn::Batch validation(std::uint64_t index) = 0;
};

// Keeps a reference to `dataset`. Throws Error(kInvalidArgument) where the data is too short for
// one sequence, if the objective needs something that the data lacks (a mask token), or if the
// vocabulary is too small.
std::unique_ptr<BatchSource> make_batch_source(const Dataset& dataset, const SourceSetup& setup);

}  // namespace lockstep::train
