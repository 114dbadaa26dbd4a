#include "lockstep/data/tokenizers/choice.h"

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::data {
namespace {

std::shared_ptr<const Tokenizer> character_tokenizer(std::span<const std::string_view> texts) {
  if (texts.size() == 1) return make_character_tokenizer(texts[0]);
  // The characters of all texts, once each and one per line, so that a byte that is not UTF-8
  // cannot form a character with its neighbours.
  std::string characters;
  for (const std::string_view text : texts) {
    const auto tokenizer = make_character_tokenizer(text);
    for (TokenId id = 0; id < tokenizer->vocabulary(); ++id) {
      tokenizer->decode(std::span(&id, 1), characters);
      characters += '\n';
    }
  }
  return make_character_tokenizer(characters);
}

}  // namespace

bool is_tokenizer_name(std::string_view choice) { return choice == "byte" || is_learned(choice); }

bool is_learned(std::string_view choice) { return choice == "character" || choice == "bpe"; }

std::shared_ptr<const Tokenizer> choose_tokenizer(std::string_view choice,
                                                  std::int64_t bpe_vocabulary,
                                                  std::span<const std::string_view> texts) {
  if (choice == "byte") return make_byte_tokenizer();
  if (choice == "character") return character_tokenizer(texts);
  if (choice == "bpe") return train_bpe_tokenizer(texts, {.vocabulary = bpe_vocabulary});
  if (std::error_code none; !std::filesystem::exists(choice, none)) {
    constexpr std::string_view kNames[] = {"byte", "character", "bpe"};
    fail(ErrorCode::kInvalidArgument,
         "unknown tokenizer '{}'{}; give byte, character, bpe, or the path of a tokenizer.json",
         choice, did_you_mean(choice, kNames));
  }
  return load_tokenizer(choice);
}

}  // namespace lockstep::data
