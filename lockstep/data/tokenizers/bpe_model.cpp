#include "lockstep/data/tokenizers/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/data/tokenizers/bpe_bytes.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

constexpr TokenId kNoToken = -1;
constexpr std::size_t kAscii = 0x80;

// A pair as it stands in a file: ["a", "b"] or "a b".
std::pair<std::string_view, std::string_view> halves_of(const JsonPart& merge) {
  if (!merge.is_text()) {
    if (merge.size() != 2) merge.reject("a merge has 2 tokens, this one has {}", merge.size());
    return {merge.at(std::size_t{0}).text(), merge.at(std::size_t{1}).text()};
  }
  const std::string_view text = merge.text();
  const std::size_t blank = text.find(' ');
  if (blank == std::string_view::npos || text.find(' ', blank + 1) != std::string_view::npos) {
    merge.reject("'{}' is not a merge; expected two tokens separated by one space", text);
  }
  return {text.substr(0, blank), text.substr(blank + 1)};
}

std::uint64_t character_key(char32_t character) { return character; }
std::uint64_t neighbours_key(char32_t left, char32_t right) {
  return std::uint64_t{left} << 32 | right;
}

}  // namespace

BpeModel::BpeModel(const JsonPart& part, const Vocabulary& vocabulary, bool byte_level)
    : byte_level_(byte_level),
      byte_fallback_(part.flag_or("byte_fallback", false)),
      fuse_unknown_(part.flag_or("fuse_unk", false)),
      ignore_merges_(part.flag_or("ignore_merges", false)) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!part.text_or(key, "").empty()) {
      part.at(key).unsupported(
          "tokens with a mark for where in a word they stand are not supported");
    }
  }
  if (part.has("dropout") && part.at("dropout").number() != 0) {
    part.at("dropout").unsupported("dropout of merges is not supported; set it to null");
  }
  if (part.has("unk_token")) {
    unknown_ = vocabulary.find(part.at("unk_token").text());
    if (!unknown_) part.at("unk_token").reject("it is not in the vocabulary");
  }
  read_merges(part.at("merges"), vocabulary);
  bytes_.fill(kNoToken);
  if (byte_level_) {
    read_bytes(vocabulary);
  } else {
    read_characters(vocabulary);
  }
}

void BpeModel::read_merges(const JsonPart& part, const Vocabulary& vocabulary) {
  const std::size_t count = part.size();
  merges_ = Merges(count);
  std::string joined;
  for (std::size_t i = 0; i < count; ++i) {
    const JsonPart merge = part.at(i);
    if (merge.is_text() && merge.text().starts_with("#version")) continue;
    const auto [left, right] = halves_of(merge);
    joined.assign(left).append(right);
    std::array<TokenId, 3> ids{};
    std::size_t filled = 0;
    for (const std::string_view token : {left, right, std::string_view(joined)}) {
      const auto id = vocabulary.find(token);
      if (!id) merge.reject("the token '{}' is not in the vocabulary", token);
      ids[filled++] = *id;
    }
    merges_[pair_key(ids[0], ids[1])] = {static_cast<std::uint32_t>(i), ids[2]};
  }
}

void BpeModel::read_bytes(const Vocabulary& vocabulary) {
  for (std::int64_t id = 0; id < vocabulary.size(); ++id) {
    const auto& token = vocabulary.token(static_cast<TokenId>(id));
    if (!token) continue;
    const auto bytes = from_visible(*token);
    if (!bytes || bytes->empty()) continue;
    if (bytes->size() == 1) {
      bytes_[static_cast<unsigned char>(bytes->front())] = static_cast<TokenId>(id);
    }
    if (ignore_merges_) words_.emplace(*bytes, static_cast<TokenId>(id));
  }
}

void BpeModel::read_characters(const Vocabulary& vocabulary) {
  ascii_.assign(kAscii, kNoToken);
  ascii_joined_.resize(kAscii * kAscii);
  for (std::int64_t id = 0; id < vocabulary.size(); ++id) {
    const auto& token = vocabulary.token(static_cast<TokenId>(id));
    if (!token || token->empty()) continue;
    if (ignore_merges_) words_.emplace(*token, static_cast<TokenId>(id));
    char32_t left = 0;
    for (std::size_t at = 0; at < token->size();) {
      const Utf8Character character = decode_utf8(std::string_view(*token).substr(at));
      const char32_t right = character.code_point;
      if (at > 0 && left < kAscii && right < kAscii) {
        ascii_joined_[left * kAscii + right] = true;
      } else if (at > 0) {
        joined_[neighbours_key(left, right)] = 1;
      } else if (character.bytes == token->size()) {
        (right < kAscii ? ascii_[right] : characters_[character_key(right)]) =
            static_cast<TokenId>(id);
      }
      left = right;
      at += character.bytes;
    }
  }
  if (!byte_fallback_) return;
  for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
    bytes_[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte)).value_or(kNoToken);
  }
}

TokenId BpeModel::id_of(char32_t character) const {
  if (character < kAscii) return ascii_[character];
  const TokenId* id = characters_.find(character_key(character));
  return id == nullptr ? kNoToken : *id;
}

std::size_t BpeModel::independent_front(std::string_view text) const {
  if (ignore_merges_) return text.size();
  Utf8Character left = decode_valid_utf8(text.data());
  for (std::size_t at = left.bytes; at < text.size();) {
    const Utf8Character right = decode_valid_utf8(text.data() + at);
    const bool both_ascii = left.code_point < kAscii && right.code_point < kAscii;
    const bool joined =
        both_ascii ? ascii_joined_[left.code_point * kAscii + right.code_point]
                   : joined_.find(neighbours_key(left.code_point, right.code_point)) != nullptr;
    // Does not cut between two unknown characters, because fuse_unk may give them one id.
    if (!joined && (id_of(right.code_point) != kNoToken || id_of(left.code_point) != kNoToken)) {
      return at;
    }
    at += right.bytes;
    left = right;
  }
  return text.size();
}

void BpeModel::fail_unknown(std::string_view what) const {
  fail(ErrorCode::kInvalidArgument,
       "{} of the text is not in the tokenizer's vocabulary, which has no token for unknown text",
       what);
}

void BpeModel::encode_characters(std::string_view word, std::vector<TokenId>& ids) const {
  // With fuse_unk a run of unknown characters has one id. It is appended when a known character
  // follows, or at the end.
  bool pending = false;
  const auto put_pending = [&] {
    if (pending) ids.push_back(*unknown_);
    pending = false;
  };
  while (!word.empty()) {
    const Utf8Character character = decode_valid_utf8(word.data());
    const std::string_view bytes = word.substr(0, character.bytes);
    word.remove_prefix(character.bytes);
    const TokenId id = id_of(character.code_point);
    if (id != kNoToken) {
      put_pending();
      ids.push_back(id);
      continue;
    }
    const auto has_id = [&](char byte) {
      return bytes_[static_cast<unsigned char>(byte)] != kNoToken;
    };
    if (std::all_of(bytes.begin(), bytes.end(), has_id)) {
      for (const char byte : bytes) ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
    } else if (unknown_) {
      if (!fuse_unknown_) put_pending();
      pending = true;
    } else {
      fail_unknown(fmt::format("the character '{}'", bytes));
    }
  }
  put_pending();
}

void BpeModel::encode_word(std::string_view word, std::vector<TokenId>& ids,
                           MergeWorkspace& workspace) const {
  ids.clear();
  if (ignore_merges_) {
    if (const auto whole = words_.find(word); whole != words_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  if (byte_level_) {
    for (const char byte : word) ids.push_back(encode_byte(static_cast<unsigned char>(byte)));
  } else {
    encode_characters(word, ids);
  }
  merge_word(merges_, ids, workspace);
}

TokenId BpeModel::encode_byte(unsigned char byte) const {
  const TokenId id = bytes_[byte];
  if (id != kNoToken) return id;
  if (!unknown_) fail_unknown(fmt::format("the byte 0x{:02X}", byte));
  return *unknown_;
}

}  // namespace lockstep::data
