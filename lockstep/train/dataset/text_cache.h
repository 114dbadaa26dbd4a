// Texts of a run as token files, made once and kept in a folder:
//
//   <cache>/training.tokens   and validation.tokens, where there is a text for it
//   <cache>/training.json     what the tokens were made of; and validation.json
//   <cache>/tokenizer.json    the tokenizer that made them
//
// They are used again only where nothing has changed: path, size, time and content of every text,
// and the tokenizer.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/options.h"
#include "lockstep/data/text/text_files.h"
#include "lockstep/data/token_file/token_file.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::train {

using TellProgress = std::function<void(std::string_view)>;

// The texts of a run, and which tokenizer it asked for.
struct TextCache {
  std::filesystem::path folder;
  std::vector<data::TextFile> training;
  std::vector<data::TextFile> validation;        // empty: none of its own
  std::string tokenizer;                         // as in DataOptions
  std::shared_ptr<const data::Tokenizer> given;  // taken instead of it; nullptr: none
  int bpe_vocabulary = 0;
};

struct CachedTokens {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  data::TokenFile training;
  std::unique_ptr<data::TokenFile> validation;  // nullptr: none of its own
};

// Throws Error(kSystem) where the folder cannot be made or written to, before any work.
CachedTokens cached_tokens(const TextCache& cache, const TellProgress& progress);

// Writes it to tokenizer.json in the folder, which is created if missing.
void keep_tokenizer(const data::Tokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace lockstep::train
