#include "lockstep/data/tokenizers/bpe_word_counts.h"

#include "lockstep/base/error.h"
#include "lockstep/data/tokenizer/words.h"
#include "lockstep/data/unicode/utf8.h"

#include <xxhash.h>

namespace lockstep::data {

WordCounts::WordCounts(std::span<const std::string_view> texts) : slots_(1 << 16) {
  for (std::string_view text : texts) {
    while (!text.empty()) {
      const std::size_t valid = valid_utf8_prefix(text);
      for_each_word(WordRule::kGpt2, text.substr(0, valid),
                    [&](std::string_view word) { add(word); });
      text.remove_prefix(valid == text.size() ? valid : valid + 1);
    }
  }
}

void WordCounts::add(std::string_view word) {
  const std::uint64_t hash = XXH3_64bits(word.data(), word.size());
  for (std::size_t at = hash % slots_.size();; at = (at + 1) % slots_.size()) {
    if (slots_[at] == 0) {
      if (words_.size() >= UINT32_MAX - 1) {
        fail(ErrorCode::kUnsupported, "the text has too many different words to learn from");
      }
      words_.push_back({word, hash, 1});
      slots_[at] = static_cast<std::uint32_t>(words_.size());
      if (2 * words_.size() > slots_.size()) grow();
      return;
    }
    Counted& there = words_[slots_[at] - 1];
    if (there.hash == hash && there.word == word) {
      ++there.count;
      return;
    }
  }
}

void WordCounts::grow() {
  std::vector<std::uint32_t> larger(2 * slots_.size());
  for (std::size_t i = 0; i < words_.size(); ++i) {
    std::size_t at = words_[i].hash % larger.size();
    while (larger[at] != 0) at = (at + 1) % larger.size();
    larger[at] = static_cast<std::uint32_t>(i + 1);
  }
  slots_ = std::move(larger);
}

}  // namespace lockstep::data
