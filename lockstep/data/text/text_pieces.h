// Cuts texts into pieces that can be tokenized independently.
//
// A *document* is a whole file, what stands between blank lines, or a line of JSON. Documents are
// tokenised each by itself. A *piece* is some small documents, or a part of a large one. A large
// document is cut only where the ids of its parts, put together, are those of the whole:
//
//   ... the last word \n next line ...   behind a line break (kBehindLines), or in front of
//                       |                a blank (kBeforeBlanks) that stands alone between a
//   ... one word another ...             printing ASCII character and an ASCII letter or digit
//               |
//
// Behind a line break words end in the patterns of GPT-2 and Llama 3 (a single line break is a word
// of its own, or the end of the punctuation before it) and in WordPiece, nothing is combined across
// it by normalisation, and characters and bytes are not cut apart. In front of a blank words begin
// where Metaspace splits: it turns the blank into the mark that it otherwise puts before a text.
// text_cut() returns which of these a tokenizer is; documents of any other are never cut.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/text/text_files.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

enum class DocumentKind : std::uint8_t { kFiles, kBlankLines, kJsonLines };

enum class TextCut : std::uint8_t { kNowhere, kBehindLines, kBeforeBlanks };

TextCut text_cut(const Tokenizer& tokenizer);

bool is_ascii_word(char letter);  // a letter or a digit

// The first place from `from` on where a document can be cut; its size where there is none.
std::size_t safe_cut(std::string_view document, std::size_t from, TextCut cut);

struct TextPiece {
  struct Part {
    std::shared_ptr<const Text> text;  // keeps `content` alive
    std::string_view content;
    std::uint64_t line = 0;  // of JSON lines: the number of this one in its file, from 1
    bool ends_document = true;
  };
  std::vector<Part> parts;
  bool validation = false;
  std::uint64_t bytes_done = 0;  // of all text, at the end of this piece
};

class TextPieces {
 public:
  struct Setup {
    DocumentKind documents = DocumentKind::kFiles;
    TextCut cut = TextCut::kNowhere;
    double validation = 0;                       // the part at the end that is marked as such
    std::size_t piece = std::size_t{256} << 10;  // bytes, about
  };
  TextPieces(std::vector<TextFile> files, const Setup& setup);

  // False where there are no more.
  bool next(TextPiece& piece);
  std::uint64_t bytes() const { return bytes_; }

 private:
  // Makes document_ the next one that is not empty; false where there is none.
  bool begin_document();
  std::string_view take_line();
  std::uint64_t position_of(const char* place) const;

  std::vector<TextFile> files_;
  Setup setup_;
  std::uint64_t bytes_ = 0;  // of all text
  std::uint64_t split_ =
      0;  // where validation begins; all places count from the first file's start
  std::size_t next_file_ = 0;
  std::shared_ptr<const Text> text_;
  std::uint64_t text_begin_ = 0;
  std::string_view rest_;      // of text_
  std::uint64_t line_ = 0;     // lines of text_ before rest_
  std::string_view document_;  // what is still to come of the document that was begun
  std::uint64_t document_line_ = 0;
};

}  // namespace lockstep::data
