// Texts of a run as token files, made once and kept in a folder (train/dataset/batch_source.h says
// in which of several):
//
//   <cache>/training.tokens   and validation.tokens, where there is a text for it
//   <cache>/training.json     what the tokens were made of; and validation.json
//   <cache>/tokenizer.json    the tokenizer that made them
//
// They are used again only where nothing has changed: path, size, time and content of every text,
// and the tokenizer. Where a text is gone, the tokens that were made of it are used.
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
#include "lockstep/train/dataset/batch_source.h"

namespace lockstep::train {

using TellProgress = std::function<void(std::string_view)>;

struct TextSource {
  std::string path;                   // as configured: a file or a folder; empty: none
  std::vector<data::TextFile> files;  // empty: nothing is there
};

// The texts of a run, and which tokenizer it asked for.
struct TextCache {
  CacheFolders folders;
  TextSource training;
  TextSource validation;
  std::string tokenizer;                         // as in DataOptions
  std::shared_ptr<const data::Tokenizer> given;  // taken instead of it; nullptr: none
  int bpe_vocabulary = 0;
  std::string field;  // that holds the text, where the files are JSON lines; empty: they are text
};

struct CachedTokens {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  data::TokenFile training;
  std::unique_ptr<data::TokenFile> validation;  // nullptr: none of its own
};

// Whether a folder has tokens that were made of the text at this path before it was gone.
bool has_tokens_of(const CacheFolders& folders, const std::string& path);

// Throws Error(kSystem) where something is to be made and its folder cannot be made or written to,
// before any work; Error(kInvalidArgument) where a text is gone and its tokens are not usable.
CachedTokens cached_tokens(const TextCache& cache, const TellProgress& progress);

// Puts it into CacheFolders::made_in, which is made where missing, as tokenizer.json; unless one of
// the folders has it already.
void keep_tokenizer(const data::Tokenizer& tokenizer, const CacheFolders& folders);

}  // namespace lockstep::train
