// Tokenizers: convert text to token ids and back.
//
//   byte        an id for each of the 256 bytes; any bytes come back exactly
//   character   an id for each character (Unicode code point) of the text it was made from
//   bpe         pair encoding of bytes as GPT-2 and Llama 3 have it, where any bytes come back
//               exactly, or of characters as Llama 2 and Gemma have it
//   wordpiece   BERT's; texts come back up to case, accents and white space, as it throws them away
//   unigram     SentencePiece's likeliest tokens, as T5 and XLM-R have it; texts come back
//               normalized
//
// A Tokenizer is immutable and thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

using TokenId = std::int32_t;

// Tokens that stand for no text. Not every tokenizer has every one.
enum class Special : std::uint8_t {
  kEndOfText,  // between documents: "<|endoftext|>", "</s>", "<|end_of_text|>"
  kBegin,      // before a document: "<s>", "<|begin_of_text|>"
  kUnknown,    // for what has no token
  kPadding,
  kMask,
  kClassify,  // BERT's [CLS]
  kSeparate,  // BERT's [SEP]
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view kind() const = 0;  // "byte", "character", "bpe", "wordpiece", "unigram"
  virtual std::int64_t vocabulary() const = 0;  // all ids are below it
  virtual std::optional<TokenId> special(Special which) const = 0;

  // Appends the ids of `text`. Adds nothing around it: no begin, no end. A special token that is
  // written out in the text becomes its id, as in the tokenizers that are loaded. Throws
  // Error(kInvalidArgument) for what has no id where there is no kUnknown (a character that a
  // character tokenizer has never seen).
  virtual void encode(std::string_view text, std::vector<TokenId>& ids) const = 0;
  // Appends the bytes of `ids`. Throws Error(kInvalidArgument) for an id that is out of range.
  virtual void decode(std::span<const TokenId> ids, std::string& text) const = 0;

  // Text from which parse_tokenizer() makes an equal tokenizer. For bpe, wordpiece and
  // unigram it is a tokenizer.json that Hugging Face's library reads as well.
  virtual std::string json() const = 0;
  // A tokenizer.json that Hugging Face's library makes an equal tokenizer of. Bytes that are no
  // UTF-8 have no text there: their ids decode to U+FFFD.
  virtual std::string hugging_face_json() const { return json(); }
};

std::unique_ptr<Tokenizer> make_byte_tokenizer();
// Of all characters in `text`, in the order of their code points; bytes that are no UTF-8 count as
// characters of their own.
std::unique_ptr<Tokenizer> make_character_tokenizer(std::string_view text);

struct BpeTraining {
  std::int64_t vocabulary = 8192;  // bytes, merges and special tokens together
  std::string end_of_text = "<|endoftext|>";
};
// Learns the merges of a byte-level BPE with GPT-2's pattern of words. Equal texts give equal
// tokenizers; fewer ids come out where the text has fewer pairs that occur twice.
std::unique_ptr<Tokenizer> train_bpe_tokenizer(std::span<const std::string_view> texts,
                                               const BpeTraining& training);

// `source` names the text in errors. Throws Error(kProtocol) for malformed text, and
// Error(kUnsupported) for a kind of tokenizer that lockstep does not have; both say which part.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, std::string_view source);
// From a file, or from the tokenizer.json in a folder.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace lockstep::data
