#include "lockstep/data/tokenizer/splitters.h"

#include <array>
#include <functional>

#include "lockstep/data/tokenizer/pattern.h"
#include "lockstep/data/tokenizer/wordpiece_words.h"

namespace lockstep::data {
namespace {

// What becomes of the matches of a pattern; the names are those of tokenizer.json.
enum class Behavior : std::uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  // runs of matches stay together
};

// A stretch of a text that matches, or one between matches.
struct Stretch {
  std::size_t begin;
  std::size_t end;
  bool matches;
};

void add_stretches(std::string_view text, const std::vector<Stretch>& stretches, Behavior behavior,
                   Pieces& pieces) {
  const auto add = [&](std::size_t begin, std::size_t end) {
    pieces.add(text.substr(begin, end - begin));
  };
  const auto joins = [&](std::size_t i) {  // whether i and i + 1 are one piece
    const bool first = stretches[i].matches;
    const bool second = stretches[i + 1].matches;
    switch (behavior) {
      case Behavior::kMergedWithPrevious:
        return !first && second;
      case Behavior::kMergedWithNext:
        return first && !second;
      case Behavior::kContiguous:
        return first == second;
      default:
        return false;
    }
  };
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    const std::size_t begin = stretches[i].begin;
    if (behavior == Behavior::kRemoved && stretches[i].matches) continue;
    while (i + 1 < stretches.size() && joins(i)) ++i;
    add(begin, stretches[i].end);
  }
}

class PatternSplitter : public Splitter {
 public:
  PatternSplitter(Pattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void split(std::string_view text, bool /*is_first*/, Pieces& pieces) const override {
    std::vector<Stretch> stretches;
    std::size_t done = 0;
    const auto add = [&](std::size_t begin, std::size_t end, bool matches) {
      stretches.push_back({begin, end, matches != invert_});
    };
    pattern_.for_each_match(text, [&](std::size_t begin, std::size_t end) {
      if (begin != done) add(done, begin, false);
      add(begin, end, true);
      done = end;
    });
    if (done != text.size()) add(done, text.size(), false);
    add_stretches(text, stretches, behavior_, pieces);
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

class RuleSplitter : public Splitter {
 public:
  explicit RuleSplitter(WordRule rule) : rule_(rule) {}

  void split(std::string_view text, bool /*is_first*/, Pieces& pieces) const override {
    for_each_word(rule_, text, [&](std::string_view word) { pieces.add(word); });
  }
  std::optional<WordRule> rule() const override { return rule_; }

 private:
  WordRule rule_;
};

// Cuts by the kinds of characters.
class ClassSplitter : public Splitter {
 public:
  ClassSplitter(std::uint8_t matching, Behavior behavior)
      : matching_(matching), behavior_(behavior) {}

  void split(std::string_view text, bool /*is_first*/, Pieces& pieces) const override {
    const CharacterClasses& classes = CharacterClasses::instance();
    std::vector<Stretch> stretches;
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Character character = decode_valid_utf8(text.data() + at);
      const bool matches = (classes[character.code_point] & matching_) != 0;
      if (!stretches.empty() && !matches && !stretches.back().matches) {
        stretches.back().end += character.bytes;
      } else {
        stretches.push_back({at, at + character.bytes, matches});
      }
      at += character.bytes;
    }
    add_stretches(text, stretches, behavior_, pieces);
  }

 private:
  std::uint8_t matching_;
  Behavior behavior_;
};

class BertSplitter : public Splitter {
 public:
  void split(std::string_view text, bool /*is_first*/, Pieces& pieces) const override {
    for_each_bert_word(text, [&](std::string_view word) { pieces.add(word); });
  }
};

class BlankFirst : public Splitter {
 public:
  void split(std::string_view text, bool /*is_first*/, Pieces& pieces) const override {
    if (text.starts_with(' ')) return pieces.add(text);
    pieces.add(pieces.made.emplace_back(fmt::format(" {}", text)));
  }
};

class Metaspace : public Splitter {
 public:
  enum class Prepend : std::uint8_t { kFirst, kNever, kAlways };

  Metaspace(std::string replacement, Prepend prepend, bool cuts)
      : replacement_(std::move(replacement)), prepend_(prepend), cuts_(cuts) {}

  void split(std::string_view text, bool is_first, Pieces& pieces) const override {
    std::string& made = pieces.made.emplace_back();
    const bool has_one = text.starts_with(' ') || text.starts_with(replacement_);
    const bool wanted = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && is_first);
    if (wanted && !has_one) made += replacement_;
    for (const char byte : text) {
      if (byte == ' ') {
        made += replacement_;
      } else {
        made += byte;
      }
    }
    if (!cuts_) return pieces.add(made);
    std::string_view rest = made;
    while (!rest.empty()) {
      const std::size_t next = std::min(rest.find(replacement_, 1), rest.size());
      pieces.add(rest.substr(0, next));
      rest.remove_prefix(next);
    }
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool cuts_;
};

}  // namespace

std::shared_ptr<const Splitter> make_rule_splitter(WordRule rule) {
  return std::make_shared<RuleSplitter>(rule);
}

std::shared_ptr<const Splitter> make_pattern_splitter(const JsonPart& part) {
  constexpr std::array<std::pair<std::string_view, Behavior>, 5> kBehaviors{
      {{"Removed", Behavior::kRemoved},
       {"Isolated", Behavior::kIsolated},
       {"MergedWithPrevious", Behavior::kMergedWithPrevious},
       {"MergedWithNext", Behavior::kMergedWithNext},
       {"Contiguous", Behavior::kContiguous}}};
  const JsonPart named = part.at("behavior");
  const auto* behavior = std::find_if(kBehaviors.begin(), kBehaviors.end(),
                                      [&](const auto& one) { return one.first == named.text(); });
  if (behavior == kBehaviors.end()) named.unsupported("unknown behavior '{}'", named.text());
  const bool invert = part.flag_or("invert", false);
  const JsonPart pattern = part.at("pattern");
  if (pattern.has("String")) {
    const JsonPart text = pattern.at("String");
    if (text.text().empty()) text.reject("an empty pattern cannot split a text");
    return std::make_shared<PatternSplitter>(Pattern::literal(text.text(), text.place()),
                                             behavior->second, invert);
  }
  const JsonPart expression = pattern.at("Regex");
  const auto rule = rule_of(expression.text());
  // They match everywhere, so that keeping what is between matches keeps nothing.
  if (rule && !invert && behavior->second == Behavior::kIsolated) return make_rule_splitter(*rule);
  if (rule && invert && behavior->second == Behavior::kRemoved) return make_rule_splitter(*rule);
  return std::make_shared<PatternSplitter>(Pattern(expression.text(), expression.place()),
                                           behavior->second, invert);
}

std::shared_ptr<const Splitter> make_digit_splitter(bool individual) {
  return std::make_shared<ClassSplitter>(std::uint8_t{kNumber},
                                         individual ? Behavior::kIsolated : Behavior::kContiguous);
}

std::shared_ptr<const Splitter> make_blank_first() { return std::make_shared<BlankFirst>(); }

std::shared_ptr<const Splitter> make_white_space_splitter() {
  return std::make_shared<ClassSplitter>(std::uint8_t{kSpace}, Behavior::kRemoved);
}

std::shared_ptr<const Splitter> make_bert_splitter() { return std::make_shared<BertSplitter>(); }

std::shared_ptr<const Splitter> make_metaspace(const JsonPart& part) {
  using Prepend = Metaspace::Prepend;
  const JsonPart replacement = part.at("replacement");
  if (replacement.text().empty() ||
      decode_utf8(replacement.text()).bytes != replacement.text().size()) {
    replacement.reject("a character was expected");
  }
  const bool add_prefix_space = part.flag_or("add_prefix_space", true);  // how it was once called
  const std::string_view scheme =
      part.text_or("prepend_scheme", add_prefix_space ? "always" : "never");
  Prepend prepend = Prepend::kAlways;
  if (scheme == "first") {
    prepend = Prepend::kFirst;
  } else if (scheme == "never") {
    prepend = Prepend::kNever;
  } else if (scheme != "always") {
    part.at("prepend_scheme").reject("'{}' is not first, never or always", scheme);
  }
  return std::make_shared<Metaspace>(std::string(replacement.text()), prepend,
                                     part.flag_or("split", true));
}

}  // namespace lockstep::data
