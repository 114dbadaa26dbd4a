#include "lockstep/data/tokenizers/unigram_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

constexpr TokenId kNoByteToken = -1;
constexpr double kUnknownPenalty = 10;
constexpr std::size_t kLongestToken = 1024;  // the search is as slow as the longest one

// A score as Hugging Face's library reads it: its parser of JSON takes the digits for a whole
// number and divides by a power of ten, which rounds twice and misses the nearest double by one
// unit in the last place for every seventh number. The digits are those of the shortest text for
// the double, which is what Python and the library write.
double score_as_read(double score) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), std::abs(score),
                                          std::chars_format::scientific);
  std::uint64_t digits = 0;
  int exponent = 0;
  bool in_fraction = false;
  for (const char* at = text.data(); error == std::errc() && at != end; ++at) {
    if (*at == 'e') {
      int power = 0;
      std::from_chars(at[1] == '+' ? at + 2 : at + 1, end, power);
      exponent += power;
      break;
    }
    if (*at == '.') {
      in_fraction = true;
      continue;
    }
    digits = 10 * digits + static_cast<std::uint64_t>(*at - '0');
    if (in_fraction) --exponent;
  }
  constexpr int kLargestPower = 308;
  auto value = static_cast<double>(digits);
  for (; exponent < -kLargestPower; exponent += kLargestPower) value /= 1e308;
  // Powers of ten are read, as pow() need not round them to the nearest double.
  const std::string power_text = fmt::format("1e{}", std::abs(exponent));
  double power = 1;
  std::from_chars(power_text.data(), power_text.data() + power_text.size(), power);
  value = exponent < 0 ? value / power : value * power;
  return std::signbit(score) ? -value : value;
}

}  // namespace

UnigramModel::UnigramModel(const JsonPart& part, Vocabulary& vocabulary) {
  const JsonPart list = part.at("vocab");
  const std::size_t count = list.size();
  if (count == 0) list.reject("it has no tokens");
  if (count > static_cast<std::size_t>(kLargestTokenId)) {
    list.reject("it has {} tokens; at most {} were expected", count, kLargestTokenId);
  }
  vocabulary.expect(count);
  scores_.reserve(count);
  for (std::size_t id = 0; id < count; ++id) {
    const JsonPart entry = list.at(id);
    if (entry.size() != 2) {
      entry.reject("expected a token and its score, got {} values", entry.size());
    }
    const JsonPart token = entry.at(std::size_t{0});
    if (token.text().size() > kLongestToken) {
      token.unsupported("it has {} bytes; at most {} can be looked for", token.text().size(),
                        kLongestToken);
    }
    vocabulary.add(token.text(), static_cast<TokenId>(id), token);
    scores_.push_back(score_as_read(entry.at(1).number()));
  }
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  if (part.has("unk_id")) {
    unknown_ =
        static_cast<TokenId>(part.at("unk_id").whole(0, static_cast<std::int64_t>(count) - 1));
  }
  std::vector<std::pair<std::string_view, TokenId>> tokens;
  for (std::size_t id = 0; id < count; ++id) {
    tokens.emplace_back(*vocabulary.token(static_cast<TokenId>(id)), static_cast<TokenId>(id));
  }
  trie_ = TokenTrie(std::move(tokens));
  bytes_.fill(kNoByteToken);
  if (!part.flag_or("byte_fallback", false)) return;
  for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
    bytes_[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte)).value_or(kNoByteToken);
  }
}

void UnigramModel::encode(std::string_view text, std::vector<TokenId>& ids,
                          UnigramWorkspace& workspace) const {
  using Node = UnigramWorkspace::Node;
  std::vector<Node>& best = workspace.best;
  best.assign(1, Node{});
  workspace.unknown_run = {};
  std::size_t begin = 0;  // of what is not settled
  for (std::size_t at = 0; at < text.size();) {
    if (at > begin && at - begin + 1 == best.size()) {  // no token reaches over this place
      settle(text.substr(begin, at - begin), ids, workspace);
      best.assign(1, Node{.score = best.back().score});
      begin = at;
    }
    const double score = best[at - begin].score;
    // Returns whether this is the best way to its end so far.
    const auto offer = [&](std::size_t bytes, double token_score, TokenId id) {
      const std::size_t place = at + bytes - begin;
      if (place >= best.size()) best.resize(place + 1);
      const double sum = token_score + score;
      if (best[place].bytes != 0 && !(sum > best[place].score)) return false;
      best[place] = {.score = sum, .bytes = static_cast<std::uint32_t>(bytes), .id = id};
      return true;
    };
    const std::size_t character = decode_valid_utf8(text.data() + at).bytes;
    bool is_token = false;
    trie_.for_each_prefix(text.substr(at), [&](std::size_t bytes, TokenId id) {
      offer(bytes, scores_[static_cast<std::size_t>(id)], id);
      is_token = is_token || bytes == character;
    });
    if (!is_token && offer(character, unknown_score_, unknown_.value_or(kNoByteToken)) &&
        !unknown_) {
      fail(
          ErrorCode::kInvalidArgument,
          "the character '{}' of the text is not in the tokenizer's vocabulary, which has no token "
          "for unknown text",
          text.substr(at, character));
    }
    at += character;
  }
  settle(text.substr(begin), ids, workspace);
  put_unknown(ids, workspace);
}

void UnigramModel::settle(std::string_view text, std::vector<TokenId>& ids,
                          UnigramWorkspace& workspace) const {
  std::vector<UnigramWorkspace::Node>& path = workspace.path;
  path.clear();
  for (std::size_t place = text.size(); place > 0; place -= path.back().bytes) {
    path.push_back(workspace.best[place]);
  }
  for (auto node = path.rbegin(); node != path.rend(); ++node) {
    put(text.substr(0, node->bytes), node->id, ids, workspace);
    text.remove_prefix(node->bytes);
  }
}

void UnigramModel::put(std::string_view token, TokenId id, std::vector<TokenId>& ids,
                       UnigramWorkspace& workspace) const {
  std::string_view& run = workspace.unknown_run;
  if (id == unknown_) {
    run = run.empty() ? token : std::string_view(run.data(), run.size() + token.size());
    return;
  }
  put_unknown(ids, workspace);
  ids.push_back(id);
}

// A run may be a token as a whole, though it is not one that the best path has.
void UnigramModel::put_unknown(std::vector<TokenId>& ids, UnigramWorkspace& workspace) const {
  const std::string_view run = workspace.unknown_run;
  if (run.empty()) return;
  workspace.unknown_run = {};
  std::optional<TokenId> whole;
  trie_.for_each_prefix(run, [&](std::size_t bytes, TokenId id) {
    if (bytes == run.size()) whole = id;
  });
  const auto id_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  if (whole) {
    ids.push_back(*whole);
  } else if (std::all_of(run.begin(), run.end(),
                         [&](char b) { return id_of(b) != kNoByteToken; })) {
    for (const char byte : run) ids.push_back(id_of(byte));
  } else {
    ids.push_back(*unknown_);
  }
}

}  // namespace lockstep::data
