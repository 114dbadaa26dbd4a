// How values of other trainers' settings are read: text in, the text of a key out, or nothing where
// the key stays as it is.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/config/config.h"

namespace lockstep::train::familiar {

using Words = std::optional<std::string>;

inline std::string lower(std::string_view text) {
  std::string small(text);
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return small;
}

// Python writes True.
inline bool is_true(std::string_view text) { return text == "1" || lower(text) == "true"; }

inline Words unless_auto(std::string_view text) {
  return text == "auto" ? std::nullopt : Words(std::string(text));
}

// A switch that turns a setting to one value, and when off says nothing.
inline Config::Translate when_on(std::string value) {
  return [value = std::move(value)](std::string_view text) {
    return is_true(text) ? Words(value) : std::nullopt;
  };
}

// Nothing for what asks for nothing: an option that is off, empty or left open.
inline Words asked_for(std::string_view text) {
  for (const char* nothing : {"", "false", "0", "-1", "none", "null", "auto", "no"}) {
    if (lower(text) == nothing) return std::nullopt;
  }
  return std::string(text);
}

}  // namespace lockstep::train::familiar
