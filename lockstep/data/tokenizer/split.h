// How a tokenizer cuts a text into words: the "pre_tokenizer" of a tokenizer.json.
//
// There are ByteLevel, Split, Digits, Metaspace, WhitespaceSplit, BertPreTokenizer and Sequence of
// those.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/json.h"
#include "lockstep/data/tokenizer/words.h"

namespace lockstep::data {

// Pieces of a text, in order, and the bytes of those that are not as they stood in it.
struct Pieces {
  std::vector<std::string_view> list;
  std::deque<std::string> made;

  void add(std::string_view piece) {
    if (!piece.empty()) list.push_back(piece);
  }
};

// One step: cuts pieces further.
class Splitter {
 public:
  virtual ~Splitter() = default;
  // `text` is UTF-8; is_first: it is the beginning of the whole text.
  virtual void split(std::string_view text, bool is_first, Pieces& pieces) const = 0;
  // Where it does nothing but cut by a famous pattern.
  virtual std::optional<WordRule> rule() const { return std::nullopt; }
};

class PreTokenizer {
 public:
  PreTokenizer() = default;  // leaves a text in one piece
  explicit PreTokenizer(const JsonPart& part);

  // Whether tokens are made of bytes, each written as a visible character (bpe_bytes.h).
  bool is_byte_level() const { return byte_level_; }
  // Where all it does is to cut by a famous pattern.
  std::optional<WordRule> only_rule() const;
  // Where it puts a blank before a text that does not begin with one, and before anything else.
  bool puts_blank_first() const { return blank_first_; }

  // `text` is UTF-8 and has its blank; is_first: it is the beginning of the whole text. Fills
  // pieces.list.
  void split(std::string_view text, bool is_first, Pieces& pieces) const;

 private:
  void add(const JsonPart& part);

  std::vector<std::shared_ptr<const Splitter>> steps_;
  bool byte_level_ = false;
  bool blank_first_ = false;
};

}  // namespace lockstep::data
