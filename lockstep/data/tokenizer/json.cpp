#include "lockstep/data/tokenizer/json.h"

#include <nlohmann/json.hpp>

namespace lockstep::data {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 64;  // files of tokenizers have some five levels

const Json& json_of(const void* value) { return *static_cast<const Json*>(value); }

// What came instead, short enough for a message.
std::string shown_json(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr std::size_t kLongest = 60;
  if (text.size() > kLongest) text.replace(kLongest, std::string::npos, "...");
  return text;
}

// Looks at keys and depths while the text is read, so that no deep tree is ever made.
Json parse_shallow(std::string_view text, std::string_view source) {
  const auto watch = [&](int depth, Json::parse_event_t /*event*/, const Json& /*parsed*/) {
    if (depth > kDeepest) {
      fail(ErrorCode::kProtocol, "{}: its JSON is nested more than {} levels deep", source,
           kDeepest);
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    fail(ErrorCode::kProtocol, "{} is not valid JSON: {}", source, error.what());
  }
}

}  // namespace

JsonFile::JsonFile(std::string_view json, std::string_view source)
    : source_(source), value_(std::make_shared<const Json>(parse_shallow(json, source))) {
  if (!json_of(value_.get()).is_object()) {
    fail(ErrorCode::kProtocol, "{} does not hold a JSON object", source);
  }
}

JsonPart JsonFile::root() const { return {value_.get(), source_}; }

bool JsonPart::is_text() const { return json_of(value_).is_string(); }

std::string_view JsonPart::text() const {
  const Json& value = json_of(value_);
  if (!value.is_string()) reject("expected a string, got {}", shown_json(value));
  return value.get_ref<const std::string&>();
}

bool JsonPart::flag() const {
  const Json& value = json_of(value_);
  if (!value.is_boolean()) {
    reject("expected true or false, got {}", shown_json(value));
  }
  return value.get<bool>();
}

std::int64_t JsonPart::whole(std::int64_t least, std::int64_t most) const {
  const Json& value = json_of(value_);
  const auto too_large = [&] {  // for a signed number
    return value.is_number_unsigned() &&
           value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  };
  if (!value.is_number_integer() || too_large() || value.get<std::int64_t>() < least ||
      value.get<std::int64_t>() > most) {
    reject("expected a whole number from {} to {}, got {}", least, most, shown_json(value));
  }
  return value.get<std::int64_t>();
}

double JsonPart::number() const {
  const Json& value = json_of(value_);
  if (!value.is_number()) reject("expected a number, got {}", shown_json(value));
  return value.get<double>();
}

std::size_t JsonPart::members() const {
  const Json& value = json_of(value_);
  if (!value.is_object()) reject("expected an object, got {}", shown_json(value));
  return value.size();
}

bool JsonPart::has(const char* key) const {
  if (members() == 0) return false;
  const Json& value = json_of(value_);
  const auto member = value.find(key);
  return member != value.end() && !member->is_null();
}

JsonPart JsonPart::at(const char* key) const {
  if (!has(key)) reject("it has no '{}'", key);
  return {&json_of(value_)[key], fmt::format("{}.{}", place_, key)};
}

std::string_view JsonPart::text_or(const char* key, std::string_view other) const {
  return has(key) ? at(key).text() : other;
}

bool JsonPart::flag_or(const char* key, bool other) const {
  return has(key) ? at(key).flag() : other;
}

void JsonPart::for_each_member(
    const std::function<void(std::string_view, const JsonPart&)>& visit) const {
  if (members() == 0) return;
  for (const auto& [key, member] : json_of(value_).items()) {
    visit(key, JsonPart(&member, fmt::format("{}.{}", place_, key)));
  }
}

std::size_t JsonPart::size() const {
  const Json& value = json_of(value_);
  if (!value.is_array()) reject("expected an array, got {}", shown_json(value));
  return value.size();
}

JsonPart JsonPart::at(std::size_t index) const {
  return {&json_of(value_)[index], fmt::format("{}[{}]", place_, index)};
}

}  // namespace lockstep::data
