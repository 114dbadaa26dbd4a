#include "lockstep/data/tokenizer/added.h"

#include <algorithm>

#include "lockstep/data/tokenizer/white_space.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kLongestAddedToken = 1024;  // searching is as slow as it is long

std::size_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

}  // namespace

AddedTokenSet::AddedTokenSet(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
  for (std::size_t byte = 0; byte < first_at_.size(); ++byte) {
    first_at_[byte] = static_cast<std::size_t>(
        std::partition_point(tokens_.begin(), tokens_.end(),
                             [&](const AddedToken& one) { return byte_at(one.text, 0) < byte; }) -
        tokens_.begin());
  }
}

const AddedToken* AddedTokenSet::longest_at(std::string_view text) const {
  std::size_t begin = first_at_[byte_at(text, 0)];
  std::size_t end = first_at_[byte_at(text, 0) + 1];
  const AddedToken* longest = nullptr;
  // All in [begin, end) have the first `depth` bytes of the text; those of just that length are
  // the first of them.
  for (std::size_t depth = 1; begin != end; ++depth) {
    while (begin != end && tokens_[begin].text.size() == depth) longest = &tokens_[begin++];
    if (depth == text.size()) break;
    const auto below = [&](std::size_t least) {
      return static_cast<std::size_t>(
          std::partition_point(
              tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
              tokens_.begin() + static_cast<std::ptrdiff_t>(end),
              [&](const AddedToken& one) { return byte_at(one.text, depth) < least; }) -
          tokens_.begin());
    };
    const std::size_t next = byte_at(text, depth);
    const std::size_t first = below(next);
    end = below(next + 1);
    begin = first;
  }
  return longest;
}

void AddedTokenSet::cut(
    std::string_view text,
    const std::function<void(std::string_view, const AddedToken*)>& visit) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t byte = byte_at(text, at);
    if (first_at_[byte] == first_at_[byte + 1]) {
      ++at;
      continue;
    }
    const AddedToken* token = longest_at(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + token->text.size();
    at = end;
    if (begin < done) continue;  // it was taken as the white space of the token before
    if (token->takes_left) begin = done + without_back_space(text.substr(done, begin - done));
    if (token->takes_right) end += front_space(text.substr(end));
    if (begin > done) visit(text.substr(done, begin - done), nullptr);
    visit(text.substr(begin, end - begin), token);
    done = end;
  }
  if (done < text.size()) visit(text.substr(done), nullptr);
}

AddedTokens AddedTokens::parse(const JsonPart& root, const Normalizer& normalizer,
                               Vocabulary& vocabulary) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  std::unordered_set<TokenId> ids;
  std::unordered_map<TokenId, std::string> normalized_texts;
  if (root.has("added_tokens")) {
    const JsonPart list = root.at("added_tokens");
    vocabulary.expect(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const JsonPart one = list.at(i);
      const std::string text(one.at("content").text());
      if (text.empty()) one.reject("its content is empty");
      if (text.size() > kLongestAddedToken) {
        one.unsupported("its content has {} bytes; at most {} can be looked for", text.size(),
                        kLongestAddedToken);
      }
      if (one.flag_or("single_word", false)) {
        one.unsupported("added tokens that are a 'single_word' are not supported");
      }
      AddedToken token{.text = text,
                       .id = static_cast<TokenId>(one.at("id").whole(0, kLargestTokenId)),
                       .takes_left = one.flag_or("lstrip", false),
                       .takes_right = one.flag_or("rstrip", false)};
      vocabulary.add(text, token.id, one);
      if (!ids.insert(token.id).second) one.reject("the token '{}' is there twice", text);
      if (!one.flag_or("normalized", !one.flag_or("special", false))) {
        raw.push_back(std::move(token));
        continue;
      }
      token.text = normalizer(text).text;
      if (token.text != text) normalized_texts.emplace(token.id, token.text);
      if (!token.text.empty()) normalized.push_back(std::move(token));
    }
  }
  return {AddedTokenSet(std::move(raw)), AddedTokenSet(std::move(normalized)), std::move(ids),
          std::move(normalized_texts)};
}

void AddedTokens::encode(std::string_view text, const Normalizer& normalizer,
                         std::vector<TokenId>& encoded,
                         const std::function<void(std::string_view, bool)>& visit) const {
  const std::size_t before = encoded.size();
  bool is_first = true;
  const auto add = [&](std::string_view stretch, bool from_begin, const AddedToken* token) {
    if (token != nullptr) {
      encoded.push_back(token->id);
    } else {
      visit(stretch, is_first && from_begin);
    }
    is_first = false;
  };
  try {
    raw.cut(text, [&](std::string_view stretch, const AddedToken* token) {
      if (token != nullptr) return add(stretch, true, token);
      const NormalizedText made = normalizer.is_identity() ? NormalizedText{} : normalizer(stretch);
      const std::string_view normal = normalizer.is_identity() ? stretch : made.text;
      if (normalized.empty()) {
        if (!normal.empty()) add(normal, made.from_begin, nullptr);
        return;
      }
      normalized.cut(normal, [&](std::string_view part, const AddedToken* found) {
        add(part, made.from_begin, found);
      });
    });
  } catch (...) {
    encoded.resize(before);
    throw;
  }
}

}  // namespace lockstep::data
