#include "lockstep/base/text/markup.h"

namespace lockstep {
namespace {

std::string_view entity_of(char c) {
  switch (c) {
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '&':
      return "&amp;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    const std::string_view entity = entity_of(c);
    if (entity.empty()) {
      safe += c;
    } else {
      safe += entity;
    }
  }
  return safe;
}

}  // namespace lockstep
