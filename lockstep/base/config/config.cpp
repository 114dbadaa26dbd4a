#include "lockstep/base/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"

namespace lockstep {
namespace {

using Duration = Config::Duration;

constexpr std::string_view kAuto = "auto";

struct ExactUnit {
  std::string_view name;
  std::int64_t factor;
};

// From large to small; the last divides everything.
constexpr ExactUnit kDurationUnits[] = {
    {"h", 3'600'000'000'000}, {"min", 60'000'000'000}, {"s", 1'000'000'000},
    {"ms", 1'000'000},        {"us", 1'000},           {"ns", 1}};
constexpr ExactUnit kSizeUnits[] = {
    {"Ti", 1ll << 40}, {"Gi", 1ll << 30}, {"Mi", 1ll << 20}, {"Ki", 1ll << 10}, {"", 1}};

// Exactly `value`, in the largest unit of which it is a multiple: nothing is lost when read back.
template <std::size_t N>
std::string format_exactly(std::int64_t value, const ExactUnit (&units)[N]) {
  const auto fits = [&](const ExactUnit& unit) { return value != 0 && value % unit.factor == 0; };
  const ExactUnit* unit = std::find_if(std::begin(units), std::end(units) - 1, fits);
  return fmt::format("{}{}", value / unit->factor, unit->name);
}

std::string format_duration(Duration value) {
  return format_exactly(value.count(), kDurationUnits);
}

std::string format_size(std::size_t value) {
  return format_exactly(static_cast<std::int64_t>(value), kSizeUnits);
}

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return std::nullopt;
}

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || last != end) return std::nullopt;
  return value;
}

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || last != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<Duration> parse_duration(std::string_view text) {
  try {
    const double nanoseconds = std::round(parse_seconds(text) * 1e9);
    if (nanoseconds >= 0x1p63) return std::nullopt;
    return Duration(static_cast<Duration::rep>(nanoseconds));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Puts a parsed value into a field if it is one and in range.
template <class T>
bool store(const std::optional<T>& value, T& field, ValueRange<T> range) {
  if (!value || *value < range.min || *value > range.max) return false;
  field = *value;
  return true;
}

}  // namespace

std::string Config::environment_name(std::string_view key) {
  std::string name = "LOCKSTEP_";
  for (const char c : key) {
    name += c == '.' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name;
}

Config::Declaration Config::add(Key key) {
  key.variable = environment_name(key.name);
  check_variable_is_free(key.name, key.variable);
  key.initial = key.print();
  keys_.push_back(std::move(key));
  return {*this, keys_.size() - 1};
}

void Config::check_variable_is_free(std::string_view name, std::string_view variable) const {
  const auto check = [&](std::string_view other, std::string_view its_variable) {
    if (its_variable != variable) return;
    fail(ErrorCode::kInvalidArgument, "the keys {} and {} would share the variable {}", other, name,
         variable);
  };
  for (const Key& key : keys_) {
    check(key.name, key.variable);
    for (const FormerName& former : key.former) check(former.name, former.variable);
  }
}

Config::Declaration& Config::Declaration::formerly(std::string_view name, Convert convert) {
  std::string variable = environment_name(name);
  config_.check_variable_is_free(name, variable);
  config_.keys_[key_].former.push_back(
      {std::string(name), std::move(variable), std::move(convert)});
  return *this;
}

std::string opposite(std::string_view text) {
  const std::optional<bool> value = parse_bool(text);
  if (!value) return std::string(text);
  return *value ? "false" : "true";
}

Config::Convert renamed_values(std::initializer_list<RenamedValue> values) {
  return [values = std::vector(values)](std::string_view text) {
    for (const RenamedValue& value : values) {
      if (value.before == text) return std::string(value.now);
    }
    return std::string(text);
  };
}

Config::Declaration Config::bind(std::string_view key, bool& field, std::string_view doc) {
  return add({.name = std::string(key),
              .type = "bool",
              .expected = "true or false",
              .doc = std::string(doc),
              .literal = Literal::kBool,
              .quoted = false,
              .assign =
                  [&field](std::string_view text) {
                    const auto value = parse_bool(text);
                    if (value) field = *value;
                    return value.has_value();
                  },
              .print = [&field] { return std::string(field ? "true" : "false"); }});
}

Config::Declaration Config::bind(std::string_view key, int& field, std::string_view doc,
                                 ValueRange<int> range) {
  return add({.name = std::string(key),
              .type = "int",
              .expected = fmt::format("an integer from {} to {}", range.min, range.max),
              .doc = std::string(doc),
              .literal = Literal::kInteger,
              .quoted = false,
              .assign = [&field, range](
                            std::string_view text) { return store(parse_int(text), field, range); },
              .print = [&field] { return fmt::to_string(field); }});
}

Config::Declaration Config::bind(std::string_view key, double& field, std::string_view doc,
                                 ValueRange<double> range) {
  std::string expected = "a number like 0.5 or 3e-4";
  if (range.min > ValueRange<double>().min) expected += fmt::format(", at least {}", range.min);
  if (range.max < ValueRange<double>().max) expected += fmt::format(", at most {}", range.max);
  return add(
      {.name = std::string(key),
       .type = "number",
       .expected = std::move(expected),
       .doc = std::string(doc),
       .literal = Literal::kNumber,
       .quoted = false,
       .assign = [&field,
                  range](std::string_view text) { return store(parse_double(text), field, range); },
       .print = [&field] { return fmt::to_string(field); }});
}

Config::Declaration Config::bind(std::string_view key, std::size_t& field, std::string_view doc,
                                 ValueRange<std::size_t> range) {
  std::string expected = R"(a size like "512Ki")";
  if (range.min > 0) expected += fmt::format(", at least {}", format_size(range.min));
  if (range.max < ValueRange<std::size_t>().max) {
    expected += fmt::format(", at most {}", format_size(range.max));
  }
  return add({.name = std::string(key),
              .type = "size",
              .expected = std::move(expected),
              .doc = std::string(doc),
              .literal = Literal::kInteger,
              .assign =
                  [&field, range](std::string_view text) {
                    return store(std::optional(parse_bytes(text)), field, range);
                  },
              .print = [&field] { return quote(format_size(field)); }});
}

Config::Declaration Config::bind(std::string_view key, Duration& field, std::string_view doc,
                                 Duration min) {
  std::string expected = R"(a duration like "30s")";
  if (min > Duration::zero()) expected += fmt::format(", at least {}", format_duration(min));
  return add({.name = std::string(key),
              .type = "duration",
              .expected = std::move(expected),
              .doc = std::string(doc),
              .assign =
                  [&field, min](std::string_view text) {
                    return store(parse_duration(text), field, {.min = min, .max = Duration::max()});
                  },
              .print = [&field] { return quote(format_duration(field)); }});
}

Config::Declaration Config::bind(std::string_view key, std::optional<Duration>& field,
                                 std::string_view doc) {
  return add({.name = std::string(key),
              .type = "duration|auto",
              .expected = R"(a duration like "30us", or "auto")",
              .doc = std::string(doc),
              .assign =
                  [&field](std::string_view text) {
                    const auto value = parse_duration(text);
                    if (!value && text != kAuto) return false;
                    field = value;
                    return true;
                  },
              .print = [&field] { return quote(field ? format_duration(*field) : kAuto); }});
}

Config::Declaration Config::bind(std::string_view key, std::string& field, std::string_view doc) {
  return add({.name = std::string(key),
              .type = "string",
              .expected = "a string",
              .doc = std::string(doc),
              .assign =
                  [&field](std::string_view text) {
                    field = text;
                    return true;
                  },
              .print = [&field] { return quote(field); }});
}

Config::Declaration Config::bind(std::string_view key, std::vector<std::string>& field,
                                 std::string_view doc) {
  return add({.name = std::string(key),
              .type = "list",
              .expected = R"(a list of strings without commas, like ["a", "b"])",
              .doc = std::string(doc),
              .literal = Literal::kList,
              .quoted = false,
              .assign =
                  [&field](std::string_view text) {
                    field.clear();
                    for (const std::string_view part : split_text(text, ',')) {
                      if (!trim(part).empty()) field.emplace_back(trim(part));
                    }
                    return true;
                  },
              .print =
                  [&field] {
                    std::vector<std::string> quoted(field.size());
                    std::transform(field.begin(), field.end(), quoted.begin(), quote);
                    return fmt::format("[{}]", fmt::join(quoted, ", "));
                  }});
}

Config::Declaration Config::bind(std::string_view key, std::vector<double>& field,
                                 std::string_view doc, ValueRange<double> range) {
  std::string expected = "a list of numbers like [1, 2.5]";
  if (range.min > ValueRange<double>().min) expected += fmt::format(", at least {}", range.min);
  return add({.name = std::string(key),
              .type = "numbers",
              .expected = std::move(expected),
              .doc = std::string(doc),
              .literal = Literal::kNumbers,
              .quoted = false,
              .assign =
                  [&field, range](std::string_view text) {
                    std::vector<double> numbers;
                    for (const std::string_view part : split_text(text, ',')) {
                      if (trim(part).empty()) continue;
                      numbers.push_back(0);
                      if (!store(parse_double(trim(part)), numbers.back(), range)) return false;
                    }
                    field = std::move(numbers);
                    return true;
                  },
              .print = [&field] { return fmt::format("[{}]", fmt::join(field, ", ")); }});
}

Config::Declaration Config::bind_choice(std::string_view key,
                                        std::span<const std::string_view> names,
                                        std::function<std::size_t()> get,
                                        std::function<void(std::size_t)> put,
                                        std::string_view doc) {
  const std::vector<std::string_view> choices(names.begin(), names.end());
  return add({.name = std::string(key),
              .type = fmt::format("{}", fmt::join(choices, "|")),
              .expected = fmt::format("one of {}", fmt::join(choices, ", ")),
              .doc = std::string(doc),
              // A choice among auto, true and false takes TOML's true, too.
              .literal = std::ranges::find(choices, "true") != choices.end() ? Literal::kBool
                                                                             : Literal::kNone,
              .choices = choices,
              .assign =
                  [choices, put = std::move(put)](std::string_view text) {
                    const auto at = std::find(choices.begin(), choices.end(), text);
                    if (at == choices.end()) return false;
                    put(static_cast<std::size_t>(at - choices.begin()));
                    return true;
                  },
              .print = [choices, get = std::move(get)] { return quote(choices[get()]); }});
}

void Config::alias(std::string_view other, std::string_view key, Translate translate) {
  const auto is_key = [&](const Key& one) { return one.name == other; };
  if (std::any_of(keys_.begin(), keys_.end(), is_key)) return;
  aliases_.push_back({std::string(other), std::string(key), std::move(translate)});
}

bool Config::is_alias(std::string_view name) const {
  return std::any_of(aliases_.begin(), aliases_.end(),
                     [&](const Alias& alias) { return alias.name == name; });
}

const Config::Key& Config::bound(std::string_view key) const {
  const auto found = std::ranges::find(keys_, key, &Key::name);
  if (found == keys_.end()) fail(ErrorCode::kInvalidArgument, "there is no setting '{}'", key);
  return *found;
}

std::vector<std::string_view> Config::keys() const {
  std::vector<std::string_view> names;
  for (const Key& key : keys_) names.push_back(key.name);
  return names;
}

bool Config::knows(std::string_view name) const {
  const auto has = [&](const Key& key) {
    return key.name == name ||
           std::ranges::find(key.former, name, &FormerName::name) != key.former.end();
  };
  return std::ranges::any_of(keys_, has) || is_alias(name);
}

bool Config::is_set(std::string_view key) const { return !bound(key).origin.empty(); }

std::optional<Config::Given> Config::given(std::string_view key) const {
  const Key& found = bound(key);
  if (found.origin.empty() || found.given == found.initial) return std::nullopt;
  return Given{found.given, found.origin};
}

void Config::copy_origins(const Config& other) {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (i >= other.keys_.size() || keys_[i].name != other.keys_[i].name) {
      fail(ErrorCode::kInvalidArgument, "a Config takes over the origins of the same keys only");
    }
    keys_[i].origin = other.keys_[i].origin;
    keys_[i].given = other.keys_[i].given;
    keys_[i].given_as = other.keys_[i].given_as;
    keys_[i].given_in = other.keys_[i].given_in;
  }
  sources_ = other.sources_;
  ignored_ = other.ignored_;
}

}  // namespace lockstep
