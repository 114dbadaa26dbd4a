// Text generation: continues a prompt token by token.
//
//   Generator generator(decoder, tokenizer);
//   Generation made = generator.run({.prompt = "Once upon", .max_new_tokens = 100},
//                                   [](std::string_view piece) { std::cout << piece; });
//
// The decoder may have its own parameters, or those of a replica that is being trained (between two
// steps). The same options and parameters give the same text.
//
// Several texts are written together, as many as the decoder has sequences: a step reads the
// parameters once for all of them. Each is the text that run() writes of its prompt alone; on a GPU
// to the bit for up to 8 of them, else up to the rounding of products.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/nn/generate/decoder.h"
#include "lockstep/nn/generate/sampling.h"

namespace lockstep::train {

struct GenerateOptions {
  std::vector<data::TokenId> prompt;  // empty: begins as a document does
  std::int64_t max_new_tokens = 256;
  nn::SamplingOptions sampling;
  bool stop_at_end_of_text = true;
  // When the context is full: drop the older half of the text and continue, instead of ending.
  bool slides = false;
};

struct Generation {
  enum class End : std::uint8_t {
    kTokens,     // as many as were asked for
    kEndOfText,  // the model ended the text
    kContext,    // the context is full
    kStopped,    // the listener returned false
  };
  std::vector<data::TokenId> tokens;  // the new ones, without an end of text
  std::string text;                   // theirs
  End end = End::kTokens;
  double prompt_seconds = 0;  // to read the prompt
  double seconds = 0;         // for the new tokens
};

class Generator {
 public:
  // Called with every piece of new text, in whole characters; return false to stop.
  using Listen = std::function<bool(std::string_view piece)>;

  // Both outlive the generator. Throws Error(kInvalidArgument) where the tokenizer has more tokens
  // than the model.
  Generator(nn::Decoder& decoder, const data::Tokenizer& tokenizer);

  // The prompt of a text: its tokens, with the token that begins documents in front where the
  // tokenizer has one.
  std::vector<data::TokenId> prompt(std::string_view text) const;

  // Throws Error(kInvalidArgument) for a prompt that fills the context.
  void check_prompt(std::span<const data::TokenId> prompt) const;
  // Throws what check_prompt() throws.
  Generation run(const GenerateOptions& options, const Listen& listen = {});

  // Called with pieces of every text and the text's index; return false to stop that text.
  using ListenToAll = std::function<bool(std::size_t text, std::string_view piece)>;
  // The texts of `prompts`, at most as many as the decoder has sequences, all with the same other
  // options (options.prompt is not read). Throws what check_prompt() throws, and
  // Error(kInvalidArgument) for more prompts.
  std::vector<Generation> run_all(const std::vector<std::vector<data::TokenId>>& prompts,
                                  const GenerateOptions& options, const ListenToAll& listen = {});

 private:
  class Texts;
  std::vector<data::TokenId> beginning() const;
  bool ends_text(data::TokenId token) const;

  nn::Decoder& decoder_;
  const data::Tokenizer& tokenizer_;
};

}  // namespace lockstep::train
