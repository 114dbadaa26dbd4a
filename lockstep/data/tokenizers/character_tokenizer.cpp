#include "lockstep/data/tokenizers/character_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/tokenizer/ids.h"
#include "lockstep/data/tokenizer/json.h"
#include "lockstep/data/tokenizers/hugging_face_json.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

constexpr TokenId kNoCharacter = -1;

// The first character and its bytes; a byte that is not UTF-8 is a character of its own.
Utf8Character character_at(std::string_view text) {
  const Utf8Character character = decode_utf8(text);
  if (character.bytes > 0) return character;
  return {CharacterTokenizer::kFirstLoneByte + static_cast<unsigned char>(text[0]), 1};
}

std::string character_text(char32_t character) {
  std::string text;
  if (character < CharacterTokenizer::kFirstLoneByte) {
    append_utf8(character, text);
  } else {
    text += static_cast<char>(character - CharacterTokenizer::kFirstLoneByte);
  }
  return text;
}

std::string shown_character(char32_t character, std::string_view text) {
  if (character < CharacterTokenizer::kFirstLoneByte) {
    return fmt::format("the character '{}' (U+{:04X})", text, static_cast<unsigned>(character));
  }
  return fmt::format("the byte 0x{:02X}, which is not valid UTF-8,",
                     static_cast<unsigned>(character - CharacterTokenizer::kFirstLoneByte));
}

}  // namespace

CharacterTokenizer::CharacterTokenizer(std::vector<char32_t> characters)
    : characters_(std::move(characters)), ascii_(0x80, kNoCharacter) {
  for (const char32_t character : characters_) {
    const auto id = static_cast<TokenId>(texts_.size());
    if (character < ascii_.size()) {
      ascii_[character] = id;
    } else {
      non_ascii_[character] = id;
    }
    texts_.push_back(character_text(character));
  }
}

void CharacterTokenizer::encode(std::string_view text, std::vector<TokenId>& ids) const {
  const std::size_t before = ids.size();
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character character = character_at(text.substr(at));
    TokenId id = kNoCharacter;
    if (character.code_point < ascii_.size()) {
      id = ascii_[character.code_point];
    } else if (const auto found = non_ascii_.find(character.code_point);
               found != non_ascii_.end()) {
      id = found->second;
    }
    if (id == kNoCharacter) {
      ids.resize(before);
      fail(ErrorCode::kInvalidArgument,
           "{} at byte {} of the text has no id: it was not in the text that this character "
           "tokenizer was made from; make one from all of the text, or use a byte tokenizer",
           shown_character(character.code_point, text.substr(at, character.bytes)), at);
    }
    ids.push_back(id);
    at += character.bytes;
  }
}

void CharacterTokenizer::decode(std::span<const TokenId> ids, std::string& text) const {
  check_ids(ids, vocabulary());
  for (const TokenId id : ids) text += texts_[static_cast<std::size_t>(id)];
}

std::string CharacterTokenizer::json() const {
  auto code_points = nlohmann::ordered_json::array();
  auto bytes = nlohmann::ordered_json::array();
  for (const char32_t character : characters_) {
    if (character < kFirstLoneByte) {
      code_points.push_back(static_cast<std::uint32_t>(character));
    } else {
      bytes.push_back(static_cast<std::uint32_t>(character - kFirstLoneByte));
    }
  }
  const nlohmann::ordered_json json{
      {"kind", "character"}, {"code_points", code_points}, {"bytes", bytes}};
  return json.dump();
}

// Characters as words of a WordLevel model. The model has no unknown token, so a character without
// an id is an error there as well. A byte that is not UTF-8 is written like the bytes of Llama 2.
std::string CharacterTokenizer::hugging_face_json() const {
  std::vector<std::string> tokens;
  for (const char32_t character : characters_) {
    tokens.push_back(
        character < kFirstLoneByte
            ? character_text(character)
            : fmt::format("<0x{:02X}>", static_cast<unsigned>(character - kFirstLoneByte)));
  }
  return data::hugging_face_json(
      {.pre_tokenizer =
           R"({"type":"Split","pattern":{"Regex":"[\\s\\S]"},"behavior":"Isolated","invert":false})",
       .decoder = R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]})",
       .model = fmt::format(R"({{"type":"WordLevel","vocab":{},"unk_token":"<unk>"}})",
                            vocabulary_json(tokens))});
}

std::unique_ptr<Tokenizer> make_character_tokenizer(std::string_view text) {
  std::vector<bool> met(CharacterTokenizer::kEnd);
  while (!text.empty()) {
    const Utf8Character character = character_at(text);
    met[character.code_point] = true;
    text.remove_prefix(character.bytes);
  }
  std::vector<char32_t> characters;
  for (char32_t character = 0; character < met.size(); ++character) {
    if (met[character]) characters.push_back(character);
  }
  return std::make_unique<CharacterTokenizer>(std::move(characters));
}

std::unique_ptr<Tokenizer> parse_character_tokenizer(const JsonPart& root) {
  std::vector<char32_t> characters;
  const auto add = [&](const char* key, char32_t first, std::int64_t most) {
    const JsonPart list = root.at(key);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const JsonPart one = list.at(i);
      const char32_t character = first + static_cast<char32_t>(one.whole(0, most));
      if (character >= 0xd800 && character < 0xe000) one.reject("it is half of a surrogate pair");
      if (!characters.empty() && character <= characters.back()) {
        one.reject("it does not follow the one before it in ascending order");
      }
      characters.push_back(character);
    }
  };
  add("code_points", 0, 0x10ffff);
  add("bytes", CharacterTokenizer::kFirstLoneByte, 0xff);
  return std::make_unique<CharacterTokenizer>(std::move(characters));
}

}  // namespace lockstep::data
