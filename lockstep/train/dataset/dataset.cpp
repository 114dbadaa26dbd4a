#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/file/mapped_file.h"
#include "lockstep/data/text/pairs.h"
#include "lockstep/data/text/table.h"
#include "lockstep/data/tokenizers/choice.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/dataset/sequence_source.h"
#include "lockstep/train/dataset/text_cache.h"
#include "lockstep/train/options/data_paths.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

void check_one_kind(const data::DataOptions& options) {
  const int given =
      static_cast<int>(!options.text.empty()) + static_cast<int>(!options.tokens.empty()) +
      static_cast<int>(!options.mixture.empty()) + static_cast<int>(!options.pairs.empty()) +
      static_cast<int>(!options.table.empty());
  if (given != 1) {
    fail(ErrorCode::kInvalidArgument,
         "{}: give one of data.text (a file or folder), data.tokens (a token file), data.mixture "
         "(several), data.pairs (for translation) and data.table (CSV)",
         given == 0 ? "the run has no data" : "several kinds of data are given");
  }
  if (!options.validation_text.empty() && !options.validation_tokens.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "data.validation_text and data.validation_tokens are both given; leave one out");
  }
  if (!options.field.empty() && options.text.empty()) {
    fail(ErrorCode::kInvalidArgument, "data.field goes with data.text in JSON lines");
  }
  if (!options.mixture.empty() &&
      !(options.validation_text.empty() && options.validation_tokens.empty())) {
    fail(ErrorCode::kUnsupported,
         "data.validation_text and data.validation_tokens do not go with data.mixture yet: "
         "data.validation_fraction of every file is held back. Leave them out");
  }
  const bool has_stream = !options.text.empty() || !options.tokens.empty();
  if (!has_stream && !(options.validation_text.empty() && options.validation_tokens.empty())) {
    fail(ErrorCode::kInvalidArgument,
         "data.validation_text and data.validation_tokens apply to data.text and data.tokens; for "
         "pairs and tables use data.validation_fraction");
  }
}

// Throws Error(kInvalidArgument) for a file or folder that is not there.
void check_data_is_there(std::string_view key, const std::string& path) {
  if (path.empty() || is_data_there(path)) return;
  const bool relative = fs::path(path).is_relative();
  fail(ErrorCode::kInvalidArgument, "{0} = {1}: there is nothing of that name{2}. Give {0}=PATH",
       key, path,
       relative ? fmt::format(" in {}, nor beside a configuration that names it",
                              fs::current_path().string())
                : "");
}

// A text may be gone once its tokens are in the cache.
void check_all_is_there(const data::DataOptions& options, const CacheFolders& cache) {
  const auto check_text = [&](std::string_view key, const std::string& path) {
    if (!has_tokens_of(cache, path)) check_data_is_there(key, path);
  };
  check_text("data.text", options.text);
  check_data_is_there("data.tokens", options.tokens);
  for (const std::string& entry : options.mixture) {
    check_data_is_there("data.mixture", data::parse_mixture_entry(entry).path);
  }
  check_data_is_there("data.pairs", options.pairs);
  check_data_is_there("data.table", options.table);
  check_text("data.validation_text", options.validation_text);
  check_data_is_there("data.validation_tokens", options.validation_tokens);
}

TextSource source_at(const std::string& path) {
  if (path.empty() || !is_data_there(path)) return {.path = path, .files = {}};
  const fs::path paths[] = {path};
  return {.path = path, .files = data::list_text_files(paths, RunFolder::no_texts())};
}

using OfModel = std::shared_ptr<const data::Tokenizer>;

// The tokenizer that was chosen for a token file, else the one beside it, else the model's, if any.
std::shared_ptr<const data::Tokenizer> tokenizer_beside(const std::string& choice,
                                                        const data::TokenFile& file,
                                                        const OfModel& of_model) {
  if (data::is_learned(choice)) {
    fail(ErrorCode::kInvalidArgument,
         "data.tokenizer = \"{}\" is learned from text, but {} already holds tokens; give the "
         "tokenizer.json that made them",
         choice, file.path().string());
  }
  if (!choice.empty()) return data::choose_tokenizer(choice, 0, {});
  const fs::path beside = file.path().parent_path() / "tokenizer.json";
  std::error_code none;
  return fs::exists(beside, none) ? data::load_tokenizer(beside) : of_model;
}

void check_same_tokenizer(const data::TokenFile& file, const data::Tokenizer& tokenizer) {
  const bool other_hash =
      !file.tokenizer_hash().empty() && file.tokenizer_hash() != content_hash(tokenizer.json());
  if (other_hash || file.vocabulary() > tokenizer.vocabulary()) {
    fail(ErrorCode::kInvalidArgument,
         "{} was made with another tokenizer (its ids are below {}) than the configured {} of {} "
         "ids; set data.tokenizer to its own",
         file.path().string(), file.vocabulary(), tokenizer.kind(), tokenizer.vocabulary());
  }
}

void open_text_into(Dataset& dataset, const data::DataOptions& options, const CacheFolders& cache,
                    const TellProgress& progress, const OfModel& of_model) {
  TextCache texts{.folders = cache,
                  .training = source_at(options.text),
                  .validation = source_at(options.validation_text),
                  .tokenizer = options.tokenizer.empty() ? "byte" : options.tokenizer,
                  .given = options.tokenizer.empty() ? of_model : nullptr,
                  .bpe_vocabulary = options.bpe_vocabulary,
                  .field = options.field};
  CachedTokens tokens = cached_tokens(texts, progress);
  dataset.tokenizer = std::move(tokens.tokenizer);
  dataset.training = std::move(tokens.training);
  dataset.text = options.text;
  if (tokens.validation) dataset.validation = std::move(*tokens.validation);
}

void open_tokens_into(Dataset& dataset, const data::DataOptions& options, const OfModel& of_model) {
  if (!options.validation_text.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "data.validation_text applies to data.text; with data.tokens give data.validation_tokens");
  }
  dataset.training.emplace(options.tokens);
  dataset.tokenizer = tokenizer_beside(options.tokenizer, *dataset.training, of_model);
}

void open_mixture_into(Dataset& dataset, const data::DataOptions& options,
                       const OfModel& of_model) {
  for (const std::string& text : options.mixture) {
    const data::MixtureEntry entry = data::parse_mixture_entry(text);
    Dataset& part = dataset.mixture.emplace_back();
    part.weight = entry.weight;
    part.validation_fraction = options.validation_fraction;
    part.mask_fraction = options.mask_fraction;
    part.training.emplace(entry.path);
    part.tokenizer = tokenizer_beside(options.tokenizer, *part.training, of_model);
  }
  // One that lies beside any of them is that of all.
  for (const Dataset& part : dataset.mixture) {
    if (!dataset.tokenizer) dataset.tokenizer = part.tokenizer;
    if (!part.tokenizer || part.tokenizer->json() == dataset.tokenizer->json()) continue;
    fail(ErrorCode::kInvalidArgument,
         "the tokenizer beside {} is not that of the other files of data.mixture, so the same ids "
         "would mean different tokens. Tokenise all of them with one: lockstep tokenize",
         part.training->path().string());
  }
  for (Dataset& part : dataset.mixture) {
    part.tokenizer = dataset.tokenizer;
    if (part.tokenizer) check_same_tokenizer(*part.training, *part.tokenizer);
  }
}

void open_pairs_into(Dataset& dataset, const data::DataOptions& options, const CacheFolders& cache,
                     const OfModel& of_model) {
  const MappedFile file(options.pairs);
  const std::vector<data::TextPair> pairs = data::parse_pairs(file.text(), options.pairs);
  file.check_whole();
  const std::string_view texts[] = {file.text()};
  const bool open = options.tokenizer.empty();
  dataset.tokenizer = open && of_model ? of_model
                                       : data::choose_tokenizer(open ? "byte" : options.tokenizer,
                                                                options.bpe_vocabulary, texts);
  keep_tokenizer(*dataset.tokenizer, cache);
  for (const data::TextPair& pair : pairs) {
    Dataset::Pair& ids = dataset.pairs.emplace_back();
    dataset.tokenizer->encode(pair.source, ids.source);
    dataset.tokenizer->encode(pair.target, ids.target);
  }
  file.check_whole();
}

void open_table_into(Dataset& dataset, const data::DataOptions& options) {
  const MappedFile file(options.table);
  data::Table table = data::parse_table(file.text(), options.table);
  file.check_whole();
  // Validation data must not affect training, not even through a mean.
  data::standardize(table,
                    table.rows() - held_back_examples(table.rows(), options.validation_fraction));
  dataset.features = static_cast<std::int64_t>(table.columns) - 1;
  dataset.table.assign(table.cells.begin(), table.cells.end());
}

}  // namespace

std::int64_t Dataset::vocabulary() const {
  if (tokenizer && !pairs.empty()) return data::translation_tokens(*tokenizer).vocabulary;
  if (tokenizer) return tokenizer->vocabulary();
  std::int64_t most = 0;
  for (const Dataset& part : mixture) most = std::max(most, part.vocabulary());
  if (!mixture.empty()) return most;
  return std::max(training ? training->vocabulary() : 0, validation ? validation->vocabulary() : 0);
}

Dataset open_dataset(const data::DataOptions& options, const CacheFolders& cache,
                     const TellProgress& progress,
                     const std::shared_ptr<const data::Tokenizer>& of_model) {
  check_one_kind(options);
  check_all_is_there(options, cache);
  Dataset dataset;
  dataset.validation_fraction = options.validation_fraction;
  dataset.mask_fraction = options.mask_fraction;
  if (!options.text.empty()) open_text_into(dataset, options, cache, progress, of_model);
  if (!options.tokens.empty()) open_tokens_into(dataset, options, of_model);
  if (!options.mixture.empty()) open_mixture_into(dataset, options, of_model);
  if (!options.pairs.empty()) open_pairs_into(dataset, options, cache, of_model);
  if (!options.table.empty()) open_table_into(dataset, options);
  if (!options.validation_tokens.empty()) dataset.validation.emplace(options.validation_tokens);
  if (dataset.tokenizer && dataset.training) {
    check_same_tokenizer(*dataset.training, *dataset.tokenizer);
    if (dataset.validation) check_same_tokenizer(*dataset.validation, *dataset.tokenizer);
  }
  return dataset;
}

}  // namespace lockstep::train
