// Tokenizes texts into token files with many threads.
//
// The ids are those that one thread would make of each document by itself, whatever the number of
// threads; text_pieces.h says how documents are found and cut. The tokenizer's end of text, if it
// has one, follows each document.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/text/text_kind.h"
#include "lockstep/data/text/text_pieces.h"
#include "lockstep/data/token_file/writer.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

struct TokenizeProgress {
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes = 0;  // of all text
  double seconds = 0;
};

struct TokenizeOptions {
  DocumentKind documents = DocumentKind::kFiles;
  std::string field;  // of kJsonLines: the one that holds the text
  int threads = 1;
  double validation = 0;  // the end of the text that goes to a writer of its own
  // Called by the thread that called tokenize(), a few times for every MiB.
  std::function<void(const TokenizeProgress&)> progress;
};

struct TokenizeSummary {
  std::uint64_t bytes = 0;  // of text, validation included
  double seconds = 0;
  TextFindings findings;
};

// Does not finish the writers; `validation` may be nullptr where none is asked for. Throws what the
// tokenizer does, with the file, and Error(kInvalidArgument) for lines that are no JSON with such a
// field; the first one in the order of the text.
TokenizeSummary tokenize(std::span<const TextFile> files, const Tokenizer& tokenizer,
                         const TokenizeOptions& options, TokenWriter& training,
                         TokenWriter* validation = nullptr);

}  // namespace lockstep::data
