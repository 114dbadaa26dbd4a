// The model of a BPE tokenizer: encodes the bytes of a word as ids.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/data/tokenizer/json.h"
#include "lockstep/data/tokenizer/vocabulary.h"
#include "lockstep/data/tokenizers/bpe_merge.h"

namespace lockstep::data {

class BpeModel {
 public:
  // Takes the "model" of a tokenizer.json; its "vocab" is already read. In a byte-level model
  // tokens consist of bytes, otherwise of characters, and some characters may fall back to their
  // bytes.
  BpeModel(const JsonPart& part, const Vocabulary& vocabulary, bool byte_level);

  std::optional<TokenId> unknown() const { return unknown_; }

  // Replaces ids with those of a word, which is UTF-8. Throws Error(kInvalidArgument) for a
  // character without an id.
  void encode_word(std::string_view word, std::vector<TokenId>& ids,
                   MergeWorkspace& workspace) const;
  // Appends the id of a single byte that is not UTF-8.
  TokenId encode_byte(unsigned char byte) const;

  // The number of bytes at the front of a text that can be encoded separately without changing ids.
  // It ends at the first place between two characters that no token joins. For models that are not
  // byte-level, where no pre-tokenizer has cut the text.
  std::size_t independent_front(std::string_view text) const;

 private:
  void read_merges(const JsonPart& part, const Vocabulary& vocabulary);
  void read_bytes(const Vocabulary& vocabulary);
  void read_characters(const Vocabulary& vocabulary);
  void encode_characters(std::string_view word, std::vector<TokenId>& ids) const;
  TokenId id_of(char32_t character) const;
  [[noreturn]] void fail_unknown(std::string_view what) const;

  bool byte_level_;
  bool byte_fallback_;
  bool fuse_unknown_;
  bool ignore_merges_;
  std::optional<TokenId> unknown_;
  Merges merges_;
  std::array<TokenId, 256> bytes_{};  // -1: it has none
  // With ignore_merges: whole tokens as bytes.
  std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>> words_;
  std::vector<TokenId> ascii_;   // of characters; -1: it has none
  PairMap<TokenId> characters_;  // beyond ASCII, by code point
  PairMap<char> joined_;         // characters that are neighbours in a token
  std::vector<bool> ascii_joined_;
};

}  // namespace lockstep::data
