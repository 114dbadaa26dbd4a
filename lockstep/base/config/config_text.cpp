// What a Config shows: the manual of its keys, and the values in force.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/config/config.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// "train" of "train.seq_len"; empty for a key without a section.
std::string_view section_of(std::string_view key) {
  const auto dot = key.find('.');
  return dot == std::string_view::npos ? std::string_view() : key.substr(0, dot);
}

}  // namespace

std::string Config::describe(std::string_view prefix) const {
  std::vector<const Key*> shown;
  const auto is_meant = [&](const Key& key) {
    if (key.name.starts_with(prefix)) return true;
    const auto is_former = [&](const FormerName& former) { return former.name == prefix; };
    const auto sets = [&](const Alias& alias) {
      return alias.name == prefix && alias.key == key.name;
    };
    return std::ranges::any_of(key.former, is_former) || std::ranges::any_of(aliases_, sets);
  };
  for (const Key& key : keys_) {
    if (is_meant(key)) shown.push_back(&key);
  }
  if (shown.empty()) {
    if (is_alias(prefix)) return fmt::format("{} is understood and has no effect\n", prefix);
    fail(ErrorCode::kInvalidArgument, "no key begins with '{}'{}", prefix, suggestion(prefix));
  }
  std::ranges::sort(shown, [](const Key* a, const Key* b) {
    return std::pair(section_of(a->name), std::string_view(a->name)) <
           std::pair(section_of(b->name), std::string_view(b->name));
  });
  std::string text;
  std::string_view section;
  for (const Key* key : shown) {
    if (section_of(key->name) != section || text.empty()) {
      section = section_of(key->name);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += fmt::format("{} = {}  ({})\n    {}", key->name, key->initial, key->type, key->doc);
    for (const FormerName& former : key->former) text += fmt::format(" (formerly {})", former.name);
    text += '\n';
  }
  return text;
}

std::vector<std::string> Config::values() const {
  std::vector<std::string> lines;
  for (const Key& key : keys_) lines.push_back(fmt::format("{} = {}", key.name, key.print()));
  return lines;
}

std::string Config::origin_of(const Key& key) {
  const std::string now = key.print();
  if (key.origin.empty()) return now == key.initial ? "default" : "derived";
  if (now == key.given) return key.origin;
  return fmt::format("derived; {} gave {}", key.origin, key.given);
}

std::string Config::resolved() const {
  std::string text;
  for (const Key& key : keys_) {
    text += fmt::format("{} = {}  # {}\n", key.name, key.print(), origin_of(key));
  }
  return text;
}

}  // namespace lockstep
