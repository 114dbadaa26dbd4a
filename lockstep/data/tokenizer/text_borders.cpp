#include "lockstep/data/tokenizer/text_borders.h"

namespace lockstep::data {
namespace {

void read_template(const JsonPart& single, const Vocabulary& vocabulary, TextBorders& borders) {
  bool behind_text = false;
  for (std::size_t i = 0; i < single.size(); ++i) {
    const JsonPart one = single.at(i);
    if (one.has("Sequence")) behind_text = true;
    if (!one.has("SpecialToken")) continue;
    std::optional<TokenId>& border = behind_text ? borders.end : borders.begin;
    if (!border) border = vocabulary.find(one.at("SpecialToken").at("id").text());
  }
}

void read_processor(const JsonPart& part, const Vocabulary& vocabulary, TextBorders& borders) {
  const std::string_view type = part.text_or("type", "");
  if (type == "Sequence") {
    const JsonPart list = part.at("processors");
    for (std::size_t i = 0; i < list.size(); ++i) read_processor(list.at(i), vocabulary, borders);
  } else if (type == "TemplateProcessing") {
    read_template(part.at("single"), vocabulary, borders);
  }
}

}  // namespace

std::optional<TokenId> TextBorders::special(Special which, const Vocabulary& vocabulary) const {
  if (which == Special::kBegin && begin) return begin;
  if (which == Special::kEndOfText && end) return end;
  return find_special(vocabulary, which);
}

TextBorders read_text_borders(const JsonPart& root, const Vocabulary& vocabulary) {
  TextBorders borders;
  if (root.has("post_processor")) read_processor(root.at("post_processor"), vocabulary, borders);
  return borders;
}

}  // namespace lockstep::data
