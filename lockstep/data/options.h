// The settings of data: the keys data.*.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/config/config.h"

namespace lockstep::data {

// One of text, tokens, mixture, pairs and table is given.
struct DataOptions {
  std::string text;                  // a file or folder of text, tokenised on first use
  std::string field;                 // of text in JSON lines: where it is
  std::string tokens;                // a token file (data/token_file/token_file.h)
  std::vector<std::string> mixture;  // token files, each behind its weight: "0.7 web.tokens"
  std::string pairs;                 // source <tab> target on each line: translation
  std::string table;                 // CSV of numbers; the last column is the target
  // "byte", "character", "bpe" (learned from the text), or a tokenizer.json or a folder with one.
  std::string tokenizer;
  int bpe_vocabulary = 8192;      // of a bpe that is learned
  std::string validation_tokens;  // a separate token file; else a part of the data is held back
  std::string validation_text;
  double validation_fraction = 0.1;  // the end of the data is held back; 0: none
  double mask_fraction = 0.15;       // of the tokens that a masked model has to predict
};

void bind(Config& config, DataOptions& options);

// An entry of DataOptions::mixture.
struct MixtureEntry {
  double weight = 0;
  std::string path;
};
// Throws Error(kInvalidArgument) for what is no weight over 0, a space and a path.
MixtureEntry parse_mixture_entry(std::string_view entry);
std::string format_mixture_entry(const MixtureEntry& entry);

}  // namespace lockstep::data
