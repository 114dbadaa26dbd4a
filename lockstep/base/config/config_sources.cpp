// Where a Config's values come from: TOML, the environment, key=value strings.
#include <fmt/format.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <string>

#include "lockstep/base/config/config.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/text/text.h"

namespace lockstep {
namespace {

// "NAME" of "a.b.NAME".
std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

// Walks a parsed file and assigns what it finds.
class TomlReader {
 public:
  TomlReader(Config& config, std::string_view source) : config_(config), source_(source) {}

  void read(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + std::string(key.str());
      if (const toml::table* section = node.as_table()) {
        read(*section, name + '.');
      } else {
        read_value(name, node);
      }
    }
  }

 private:
  void read_value(std::string_view name, const toml::node& node) {
    const std::string origin =
        fmt::format("{}:{}:{}", source_, node.source().begin.line, node.source().begin.column);
    if (config_.is_alias(name)) {
      config_.assign_alias(name, any_text(node, origin, name), origin);
      return;
    }
    const Config::NamedKey named = config_.find(name, origin);
    if (const auto text = as_text(*named.key, node)) {
      config_.assign(named, *text, origin);
    } else {
      std::ostringstream type;
      type << node.type();
      fail(ErrorCode::kInvalidArgument, "{}: {} must be {}; it is of type {}", origin, name,
           named.key->expected, type.str());
    }
  }

  // The value as text, whatever its type.
  static std::string any_text(const toml::node& node, std::string_view origin,
                              std::string_view name) {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
    if (const auto* value = node.as_integer()) return fmt::to_string(value->get());
    if (const auto* value = node.as_floating_point()) return fmt::to_string(value->get());
    if (const auto* list = node.as_array()) {
      std::vector<std::string> parts;
      for (const toml::node& one : *list) parts.push_back(any_text(one, origin, name));
      return fmt::format("{}", fmt::join(parts, ","));
    }
    fail(ErrorCode::kInvalidArgument, "{}: {} must be a value or a list of values", origin, name);
  }

  // The value as the text that Key::assign takes; nothing when its type is not the key's.
  static std::optional<std::string> as_text(const Config::Key& key, const toml::node& node) {
    if (const auto* text = node.as_string(); text != nullptr && key.quoted) return text->get();
    if (const auto* value = node.as_boolean();
        value != nullptr && key.literal == Config::Literal::kBool) {
      return value->get() ? "true" : "false";
    }
    if (const auto* value = node.as_integer();
        value != nullptr &&
        (key.literal == Config::Literal::kInteger || key.literal == Config::Literal::kNumber)) {
      return fmt::to_string(value->get());
    }
    if (const auto* value = node.as_floating_point();
        value != nullptr && key.literal == Config::Literal::kNumber) {
      return fmt::to_string(value->get());
    }
    if (const auto* list = node.as_array();
        list != nullptr && key.literal == Config::Literal::kList) {
      std::vector<std::string> parts;
      for (const toml::node& element : *list) {
        const auto* text = element.as_string();
        if (text == nullptr || text->get().find(',') != std::string::npos) return std::nullopt;
        parts.push_back(text->get());
      }
      return fmt::format("{}", fmt::join(parts, ","));
    }
    if (const auto* list = node.as_array();
        list != nullptr && key.literal == Config::Literal::kNumbers) {
      std::vector<std::string> parts;
      for (const toml::node& element : *list) {
        if (!element.is_number()) return std::nullopt;
        parts.push_back(fmt::to_string(*element.value<double>()));
      }
      return fmt::format("{}", fmt::join(parts, ","));
    }
    return std::nullopt;
  }

  Config& config_;
  std::string_view source_;
};

Config::NamedKey Config::find(std::string_view name, std::string_view origin) {
  for (Key& key : keys_) {
    if (key.name == name) return {&key, nullptr};
    for (const FormerName& former : key.former) {
      if (former.name == name) return {&key, &former};
    }
  }
  fail(ErrorCode::kInvalidArgument, "{}: there is no key '{}'{}", origin, name, suggestion(name));
}

std::string Config::suggestion(std::string_view name) const {
  // A key without its section, or in another one, is the likelier slip than a misspelt one; and so
  // is what the key is called elsewhere: optimizer.lr, train.batch_size.
  const auto called = [&](std::string_view other) { return last_part(other) == last_part(name); };
  std::vector<std::string_view> meant;
  for (const Key& key : keys_) {
    const auto was_called = [&](const FormerName& former) { return called(former.name); };
    if (called(key.name) || std::ranges::any_of(key.former, was_called)) meant.push_back(key.name);
  }
  if (meant.size() == 1) return fmt::format(" (did you mean {}?)", meant.front());
  if (meant.empty()) {
    const auto alias = std::ranges::find_if(
        aliases_, [&](const Alias& one) { return !one.key.empty() && called(one.name); });
    if (alias != aliases_.end()) return fmt::format(" (did you mean {}?)", alias->key);
  }
  std::vector<std::string_view> all;
  for (const Key& key : keys_) all.push_back(key.name);
  for (const Alias& alias : aliases_) all.push_back(alias.name);
  return did_you_mean(name, all);
}

void Config::check_one_name(const Key& key, std::string_view name, int source,
                            std::string_view origin) {
  if (key.origin.empty() || key.given_as.empty() || key.given_in != source) return;
  if (key.given_as == name) return;
  fail(ErrorCode::kInvalidArgument,
       "{}: {} and {} are the same setting, and both are given. Keep {}, the current name", origin,
       key.given_as, name, key.name);
}

void Config::assign(const NamedKey& named, std::string_view text, std::string_view origin) {
  Key& key = *named.key;
  const std::string& given_as = named.former != nullptr ? named.former->name : key.name;
  check_one_name(key, given_as, source_, origin);
  const bool converts = named.former != nullptr && named.former->convert;
  const std::string value = converts ? named.former->convert(text) : std::string(text);
  const std::string shown =
      named.former != nullptr ? fmt::format("{} (formerly {})", key.name, given_as) : key.name;
  const auto is_taken = [&] {
    try {
      return key.assign(value);
    } catch (const Error& error) {
      fail(error.code(), "{}: {} must be {}: {}", origin, shown, key.expected, error.what());
    }
  };
  if (!is_taken()) {
    fail(ErrorCode::kInvalidArgument, "{}: {} must be {}; it is '{}'{}", origin, shown,
         key.expected, text, did_you_mean(text, key.choices));
  }
  key.origin = origin;
  key.given = key.print();
  key.given_as = given_as;
  key.given_in = source_;
}

void Config::assign_alias(std::string_view name, std::string_view text, std::string_view origin) {
  const std::string known_as = fmt::format("{} ({})", origin, name);
  for (const Alias& alias : aliases_) {
    if (alias.name != name) continue;
    const auto value = alias.translate ? alias.translate(text) : std::string(text);
    if (!value) continue;
    if (alias.key.empty()) {
      if (std::ranges::find(ignored_, name) == ignored_.end()) ignored_.emplace_back(name);
      continue;
    }
    const NamedKey named = find(alias.key, known_as);
    named.key->given_as.clear();  // an alias may stand beside the key
    assign(named, *value, known_as);
    named.key->given_as.clear();
  }
}

void Config::read_file(const std::string& path) {
  std::string text;
  try {
    text = lockstep::read_file(path);
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidArgument, "the configuration cannot be read: {}", error.what());
  }
  if (path.ends_with(".json")) {
    read_json(text, path);
  } else {
    read_toml(text, path);
  }
}

void Config::read_toml(std::string_view text, std::string_view source) {
  source_ = ++sources_;
  try {
    TomlReader(*this, source).read(toml::parse(text), "");
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    fail(ErrorCode::kInvalidArgument, "{}:{}:{}: {}", source, at.line, at.column,
         error.description());
  }
}

void Config::read_environment() {
  source_ = ++sources_;
  struct Variable {
    std::string_view name;
    NamedKey key;
  };
  std::vector<Variable> variables;
  std::vector<std::string> sections;
  for (Key& key : keys_) {
    variables.push_back({key.variable, {&key, nullptr}});
    for (const FormerName& former : key.former)
      variables.push_back({former.variable, {&key, &former}});
    if (const auto dot = key.name.find('.'); dot != std::string::npos) {
      sections.push_back(environment_name(key.name.substr(0, dot + 1)));
    }
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (name.size() == variable.size()) continue;
    const auto at = std::ranges::find(variables, name, &Variable::name);
    if (at != variables.end()) {
      assign(at->key, variable.substr(name.size() + 1), name);
    } else if (std::any_of(sections.begin(), sections.end(),
                           [&](const std::string& section) { return name.starts_with(section); })) {
      std::vector<std::string_view> present;
      for (const Key& key : keys_) present.push_back(key.variable);
      fail(ErrorCode::kInvalidArgument, "the environment variable {} belongs to no key{}", name,
           did_you_mean(name, present));
    }
  }
}

void Config::set(std::string_view key_and_value) {
  const auto equals = key_and_value.find('=');
  if (equals == std::string_view::npos) {
    fail(ErrorCode::kInvalidArgument, "'{}' is not of the form key=value", key_and_value);
  }
  constexpr std::string_view kOrigin = "command line";
  source_ = 0;
  const std::string_view key = trim(key_and_value.substr(0, equals));
  const std::string_view value = trim(key_and_value.substr(equals + 1));
  if (is_alias(key)) {
    assign_alias(key, value, kOrigin);
  } else {
    assign(find(key, kOrigin), value, kOrigin);
  }
}

}  // namespace lockstep
