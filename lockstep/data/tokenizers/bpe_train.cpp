#include "lockstep/data/tokenizers/bpe_train.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/tokenizers/bpe_bytes.h"
#include "lockstep/data/tokenizers/bpe_pair_map.h"
#include "lockstep/data/tokenizers/bpe_word_counts.h"
#include "lockstep/data/tokenizers/hugging_face_json.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kLeastOccurrences = 2;

// The bytes, ordered as the characters that they are written with.
std::array<unsigned char, 256> ordered_bytes() {
  std::array<unsigned char, 256> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
  std::sort(bytes.begin(), bytes.end(),
            [](unsigned char a, unsigned char b) { return visible_of(a) < visible_of(b); });
  return bytes;
}

// Words are ranges of ids in one array. Every merge updates the counts of pairs. Each pair has a
// list of the words that contain or contained it.
class Learner {
 public:
  Learner(std::span<const std::string_view> texts, std::size_t vocabulary)
      : vocabulary_(vocabulary) {
    std::array<TokenId, 256> id_of{};
    for (const unsigned char byte : ordered_bytes()) {
      id_of[byte] = static_cast<TokenId>(learned_.tokens.size());
      add_token(std::string(1, static_cast<char>(byte)));
    }
    const WordCounts counts(texts);
    counts.for_each([&](std::string_view word, std::uint64_t count) {
      if (word.size() < 2) return;
      if (symbols_.size() + word.size() > UINT32_MAX) {
        fail(ErrorCode::kUnsupported, "the text has too many different words to learn from");
      }
      words_.push_back({static_cast<std::uint32_t>(symbols_.size()),
                        static_cast<std::uint32_t>(word.size()), static_cast<std::int64_t>(count)});
      for (const char byte : word) symbols_.push_back(id_of[static_cast<unsigned char>(byte)]);
    });
    count_pairs();
  }

  LearnedBpe learn() {
    while (learned_.tokens.size() < vocabulary_ && !heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      Candidate top = heap_.back();
      heap_.pop_back();
      const Pair& pair = pairs_[*places_.find(top.key)];
      if (pair.count != top.count) {  // its count fell since it was pushed
        top.count = pair.count;
        push(top);
        continue;
      }
      if (top.count < kLeastOccurrences) break;
      merge(top.key);
    }
    return std::move(learned_);
  }

 private:
  struct Word {
    std::uint32_t begin;
    std::uint32_t size;
    std::int64_t count;
  };
  struct Pair {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  // ascending
  };
  struct Candidate {
    std::int64_t count;
    std::uint64_t key;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  TokenId add_token(std::string token) {
    const auto [place, is_new] = ids_.emplace(token, static_cast<TokenId>(learned_.tokens.size()));
    if (is_new) learned_.tokens.push_back(std::move(token));
    return place->second;
  }

  void push(Candidate candidate) {
    heap_.push_back(candidate);
    std::push_heap(heap_.begin(), heap_.end());
  }

  std::size_t place_of(std::uint64_t key) {
    std::uint32_t& place = places_[key];
    if (pairs_.size() == places_.size()) return place;
    place = static_cast<std::uint32_t>(pairs_.size());
    pairs_.emplace_back();
    return place;
  }

  void occurs(std::uint64_t key, std::uint32_t word, std::int64_t count) {
    Pair& pair = pairs_[place_of(key)];
    pair.count += count;
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
  }

  void count_pairs() {
    for (std::uint32_t index = 0; index < words_.size(); ++index) {
      const Word& word = words_[index];
      for (std::uint32_t i = word.begin; i + 1 < word.begin + word.size; ++i) {
        occurs(pair_key(symbols_[i], symbols_[i + 1]), index, word.count);
      }
    }
    places_.for_each([&](std::uint64_t key, std::uint32_t place) {
      heap_.push_back({pairs_[place].count, key});
    });
    std::make_heap(heap_.begin(), heap_.end());
  }

  void merge(std::uint64_t key) {
    const auto left = static_cast<TokenId>(key >> 32);
    const auto right = static_cast<TokenId>(key & 0xffffffffu);
    const TokenId joined = add_token(learned_.tokens[static_cast<std::size_t>(left)] +
                                     learned_.tokens[static_cast<std::size_t>(right)]);
    learned_.merges.emplace_back(left, right);
    const std::vector<std::uint32_t> words = std::move(pairs_[*places_.find(key)].words);
    met_.clear();
    for (const std::uint32_t word : words) merge_in(word, left, right, joined);
    std::sort(met_.begin(), met_.end());
    met_.erase(std::unique(met_.begin(), met_.end()), met_.end());
    for (const std::uint64_t pair : met_) push({pairs_[*places_.find(pair)].count, pair});
  }

  // Records new pairs in met_.
  void merge_in(std::uint32_t index, TokenId left, TokenId right, TokenId joined) {
    Word& word = words_[index];
    TokenId* const symbols = symbols_.data() + word.begin;
    const auto gone = [&](TokenId a, TokenId b) {
      pairs_[place_of(pair_key(a, b))].count -= word.count;
    };
    const auto comes = [&](TokenId a, TokenId b) {
      const std::uint64_t key = pair_key(a, b);
      occurs(key, index, word.count);
      if (met_.empty() || met_.back() != key) met_.push_back(key);
    };
    std::uint32_t to = 0;
    for (std::uint32_t from = 0; from < word.size; ++to) {
      if (from + 1 == word.size || symbols[from] != left || symbols[from + 1] != right) {
        symbols[to] = symbols[from++];
        continue;
      }
      if (to > 0) {
        gone(symbols[to - 1], left);
        comes(symbols[to - 1], joined);
      }
      from += 2;
      symbols[to] = joined;
      if (from < word.size) {
        gone(right, symbols[from]);
        comes(joined, symbols[from]);
      }
    }
    word.size = to;
  }

  std::size_t vocabulary_;
  LearnedBpe learned_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<Word> words_;
  std::vector<TokenId> symbols_;
  PairMap<std::uint32_t> places_;  // where in pairs_
  std::vector<Pair> pairs_;
  std::vector<Candidate> heap_;
  std::vector<std::uint64_t> met_;
};

std::string json_of_learned(const LearnedBpe& learned, const std::string& end_of_text) {
  using LearnedJson = nlohmann::ordered_json;
  const auto end_id = learned.tokens.size();
  std::vector<std::string> tokens;
  for (const std::string& token : learned.tokens) tokens.push_back(to_visible(token));
  tokens.push_back(end_of_text);
  LearnedJson merges = LearnedJson::array();
  for (const auto& [left, right] : learned.merges) {
    merges.push_back({to_visible(learned.tokens[static_cast<std::size_t>(left)]),
                      to_visible(learned.tokens[static_cast<std::size_t>(right)])});
  }
  const LearnedJson added{{"id", end_id},    {"content", end_of_text}, {"single_word", false},
                          {"lstrip", false}, {"rstrip", false},        {"normalized", false},
                          {"special", true}};
  const std::string bytes = byte_level_json(true);
  return hugging_face_json({.added_tokens = "[" + added.dump() + "]",
                            .pre_tokenizer = bytes,
                            .decoder = bytes,
                            .model = bpe_model_json(vocabulary_json(tokens), merges.dump())});
}

}  // namespace

LearnedBpe learn_bpe(std::span<const std::string_view> texts, std::size_t vocabulary) {
  return Learner(texts, vocabulary).learn();
}

std::unique_ptr<Tokenizer> train_bpe_tokenizer(std::span<const std::string_view> texts,
                                               const BpeTraining& training) {
  constexpr std::int64_t kLeast = 256 + 1;  // the bytes and the end of a text
  constexpr std::int64_t kMost = 1 << 22;
  if (training.vocabulary < kLeast || training.vocabulary > kMost) {
    fail(ErrorCode::kInvalidArgument,
         "cannot learn a BPE of {} tokens: it has at least {}, the 256 bytes and the end of a "
         "text, and at most {}",
         training.vocabulary, kLeast, kMost);
  }
  if (training.end_of_text.empty() ||
      valid_utf8_prefix(training.end_of_text) != training.end_of_text.size()) {
    fail(ErrorCode::kInvalidArgument, "the token for the end of a text has to be some UTF-8");
  }
  const LearnedBpe learned = learn_bpe(texts, static_cast<std::size_t>(training.vocabulary) - 1);
  for (const std::string& token : learned.tokens) {
    if (to_visible(token) == training.end_of_text) {
      fail(ErrorCode::kInvalidArgument,
           "'{}' cannot be the token for the end of a text: it is a word of the text",
           training.end_of_text);
    }
  }
  return parse_tokenizer(json_of_learned(learned, training.end_of_text), "a learned BPE");
}

}  // namespace lockstep::data
