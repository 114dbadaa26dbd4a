#include "lockstep/data/tokenizer/split.h"

#include <functional>

#include "lockstep/data/tokenizer/splitters.h"

namespace lockstep::data {
namespace {

// Whether `part` is of the bytes of `whole`, but not the first of them.
bool is_behind(std::string_view part, std::string_view whole) {
  return std::less<>()(whole.data(), part.data()) &&
         std::less<>()(part.data(), whole.data() + whole.size());
}

}  // namespace

PreTokenizer::PreTokenizer(const JsonPart& part) { add(part); }

std::optional<WordRule> PreTokenizer::only_rule() const {
  return steps_.size() == 1 ? steps_.front()->rule() : std::nullopt;
}

void PreTokenizer::split(std::string_view text, bool is_first, Pieces& pieces) const {
  pieces.list.clear();
  pieces.made.clear();
  pieces.add(text);
  for (const auto& step : steps_) {
    const std::vector<std::string_view> before = std::move(pieces.list);
    pieces.list.clear();
    for (std::size_t i = 0; i < before.size(); ++i) {
      step->split(before[i], is_first && i == 0, pieces);
    }
    // White space that was thrown away was the beginning.
    is_first = is_first && !pieces.list.empty() && !is_behind(pieces.list.front(), before.front());
  }
}

void PreTokenizer::add(const JsonPart& part) {
  const std::string_view type = part.at("type").text();
  if (byte_level_) {
    part.unsupported("'{}' follows ByteLevel, which must be the last of a sequence", type);
  }
  if (type == "Sequence") {
    const JsonPart list = part.at("pretokenizers");
    for (std::size_t i = 0; i < list.size(); ++i) add(list.at(i));
  } else if (type == "ByteLevel") {
    if (part.flag_or("add_prefix_space", true)) {
      if (steps_.empty()) {
        blank_first_ = true;
      } else {
        steps_.push_back(make_blank_first());
      }
    }
    if (part.flag_or("use_regex", true)) steps_.push_back(make_rule_splitter(WordRule::kGpt2));
    byte_level_ = true;
  } else if (type == "Split") {
    steps_.push_back(make_pattern_splitter(part));
  } else if (type == "Digits") {
    steps_.push_back(make_digit_splitter(part.flag_or("individual_digits", false)));
  } else if (type == "Metaspace") {
    steps_.push_back(make_metaspace(part));
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(make_white_space_splitter());
  } else if (type == "BertPreTokenizer") {
    steps_.push_back(make_bert_splitter());
  } else {
    part.unsupported(
        "unknown pre-tokenizer '{}'; lockstep supports ByteLevel, Split, Digits, Metaspace, "
        "WhitespaceSplit, BertPreTokenizer and Sequence",
        type);
  }
}

}  // namespace lockstep::data
