#include "lockstep/bench/tokenize/mixed_text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/base/math/counter_rng.h"

namespace lockstep::bench {
namespace {

// Syllables of a script; words are one to four of them.
constexpr std::array<std::string_view, 12> kScripts[] = {
    {"the", "in", "er", "an", "re", "on", "at", "en", "st", "ing", "ed", "ly"},
    {"the", "and", "o", "a", "con", "pro", "tion", "ment", "able", "un", "ful", "s"},
    {"ü", "ß", "sch", "ein", "ä", "ge", "ung", "ö", "keit", "ver", "é", "ç"},
    {"при", "вет", "на", "ст", "ов", "ени", "ый", "про", "ка", "ть", "и", "з"},
    {"的", "一", "是", "不", "了", "在", "人", "有", "我", "他", "这", "中"},
    {"の", "に", "は", "カ", "タ", "です", "ます", "日", "本", "語", "し", "て"},
    {"한", "국", "어", "는", "이", "다", "의", "가", "를", "사", "람", "은"},
    {"ال", "في", "من", "على", "ان", "ه", "ي", "و", "ل", "م", "ن", "ر"},
    {"नम", "स्", "ते", "है", "का", "की", "में", "और", "से", "को", "पर", "ने"}};
constexpr std::string_view kSeparators[] = {" ",  " ",  " ", " ",    " ",        " ",   ", ",
                                            ". ", "\n", "—", "  \t", "\r\n\r\n", "'s ", "!? "};
constexpr std::string_view kOddities[] = {"😀",
                                          "👨‍👩‍👧",
                                          "🏳️‍🌈",
                                          " → ",
                                          "\u00a0",
                                          "don't",
                                          "https://example.org/a?b=c&d=%20",
                                          "\n\n\n",
                                          "                ",
                                          "e\u0301",
                                          "…",
                                          "x86_64"};
constexpr std::size_t kWordsOfAScript = 4000;

class Source {
 public:
  std::uint32_t below(std::size_t count) {
    return static_cast<std::uint32_t>(random_word(20, 0, at_++) % count);
  }
  // Small numbers are frequent: one in about log(count) is among the first few.
  std::size_t rank(std::size_t count) {
    const double uniform = to_uniform(random_word(20, 0, at_++));
    return static_cast<std::size_t>(std::pow(static_cast<double>(count), uniform)) - 1;
  }

 private:
  std::uint64_t at_ = 0;
};

std::string code_line(Source& source) {
  return fmt::format("{:{}}for (int i{} = {}; i < {:.3f}; ++i) {{ value[{}] += 0x{:x}; }}\n", "",
                     4 * source.below(5), source.below(9), source.below(100000),
                     source.below(1000000) / 7.0, source.below(3000), source.below(1u << 30));
}

}  // namespace

std::string mixed_text(std::size_t bytes) {
  Source source;
  std::vector<std::vector<std::string>> words;
  for (const auto& syllables : kScripts) {
    std::vector<std::string>& list = words.emplace_back();
    while (list.size() < kWordsOfAScript) {
      std::string word;
      for (std::uint32_t left = 1 + source.below(4); left > 0; --left) {
        word += syllables[source.below(syllables.size())];
      }
      list.push_back(std::move(word));
    }
  }
  std::string text;
  while (text.size() < bytes) {
    const std::uint32_t what = source.below(20);
    if (what == 0) {
      for (int line = 0; line < 5; ++line) text += code_line(source);
      continue;
    }
    if (what == 1) text += kOddities[source.below(std::size(kOddities))];
    // Half of it is Latin.
    const auto& list = words[what < 11 ? source.below(2) : source.below(words.size())];
    for (int word = 0; word < 20; ++word) {
      text += list[source.rank(list.size())];
      text += kSeparators[source.below(std::size(kSeparators))];
    }
  }
  return text;
}

}  // namespace lockstep::bench
