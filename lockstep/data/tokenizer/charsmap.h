// The normalizer "Precompiled": SentencePiece's table of replacements for characters.
//
// The table is Base64 in the file. Its bytes, all numbers little-endian:
//
//   u32           bytes of the trie, n
//   n / 4 u32     a double array: a trie from texts to places in the replacements
//   the rest      replacements, each ended by a NUL
//
// As in Hugging Face's library a grapheme cluster of less than 6 bytes is looked up as a whole, and
// the characters of other clusters one by one. A lookup finds the shortest text of the table that
// the cluster begins with, and its replacement is the replacement of the whole cluster.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/json.h"

namespace lockstep::data {

class Charsmap {
 public:
  // The "precompiled_charsmap".
  explicit Charsmap(const JsonPart& part);
  Charsmap(const Charsmap&) = delete;
  Charsmap& operator=(const Charsmap&) = delete;

  // `text` is UTF-8. Throws Error(kProtocol) where the trie leads out of the table.
  void append_replaced(std::string_view text, std::string& result) const;

 private:
  // Nothing: the cluster or character stays.
  std::optional<std::string_view> replacement(std::string_view what) const;
  std::uint32_t unit(std::size_t index) const;

  std::string place_;
  std::vector<std::uint32_t> units_;
  std::string replacements_;
  std::array<std::optional<std::string_view>, 128> ascii_;  // of single characters
};

}  // namespace lockstep::data
