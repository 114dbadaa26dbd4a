// Settings from JSON, which other trainers keep theirs in.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/config/config.h"
#include "lockstep/base/error.h"

namespace lockstep {

class JsonReader {
 public:
  JsonReader(Config& config, std::string_view source) : config_(config), source_(source) {}

  void read(const nlohmann::json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.items()) {
      if (value.is_object()) {
        read(value, prefix + key + '.');
      } else if (!value.is_null()) {
        read_value(prefix + key, value);
      }
    }
  }

 private:
  void read_value(const std::string& name, const nlohmann::json& value) {
    if (config_.is_alias(name)) {
      config_.assign_alias(name, text_of(value, name), source_);
      return;
    }
    const Config::NamedKey named = config_.find(name, source_);
    const Config::Key& key = *named.key;
    const bool expects_text = key.literal == Config::Literal::kNone;
    if (value.is_string() ? !key.quoted : expects_text) {
      fail(ErrorCode::kInvalidArgument, "{}: {} must be {}; it is {}", source_, name, key.expected,
           value.dump());
    }
    config_.assign(named, text_of(value, name), source_);
  }

  std::string text_of(const nlohmann::json& value, const std::string& name) const {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_boolean() || value.is_number()) return value.dump();
    if (!value.is_array()) {
      fail(ErrorCode::kInvalidArgument, "{}: {} must be a single value", source_, name);
    }
    std::vector<std::string> parts;
    for (const nlohmann::json& one : value) parts.push_back(text_of(one, name));
    return fmt::format("{}", fmt::join(parts, ","));
  }

  Config& config_;
  std::string_view source_;
};

void Config::read_json(std::string_view text, std::string_view source) {
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text, nullptr, true, true);
  } catch (const nlohmann::json::parse_error& error) {
    fail(ErrorCode::kInvalidArgument, "{} is not valid JSON: {}", source, error.what());
  } catch (const nlohmann::json::out_of_range& error) {
    fail(ErrorCode::kInvalidArgument, "{} has a number beyond what a double holds: {}", source,
         error.what());
  }
  if (!json.is_object()) {
    fail(ErrorCode::kInvalidArgument, "{}: expected a JSON object", source);
  }
  source_ = ++sources_;
  JsonReader(*this, source).read(json, "");
}

}  // namespace lockstep
