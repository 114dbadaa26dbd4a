// JSON access for the readers of tokenizer.json, with the path in errors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

// The largest id in a file: far beyond every real vocabulary, and small enough for tables of that
// size.
inline constexpr TokenId kLargestTokenId = (1 << 24) - 1;

// A value in a file and its path: "tokenizer.json: model.merges[3]". An unexpected value throws
// Error(kProtocol) with the path. Valid while its JsonFile is.
class JsonPart {
 public:
  const std::string& place() const { return place_; }

  template <class... Args>
  [[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kProtocol, "{}: {}", place_, fmt::format(format, std::forward<Args>(args)...));
  }
  // Error(kUnsupported) instead.
  template <class... Args>
  [[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kUnsupported, "{}: {}", place_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  bool is_text() const;
  std::string_view text() const;
  bool flag() const;
  std::int64_t whole(std::int64_t least, std::int64_t most) const;
  double number() const;

  // Of an object. A member that is null counts as missing.
  std::size_t members() const;
  bool has(const char* key) const;
  JsonPart at(const char* key) const;
  std::string_view text_or(const char* key, std::string_view other) const;
  bool flag_or(const char* key, bool other) const;
  void for_each_member(
      const std::function<void(std::string_view key, const JsonPart& value)>& visit) const;

  // Of an array.
  std::size_t size() const;
  JsonPart at(std::size_t index) const;

 private:
  friend class JsonFile;
  JsonPart(const void* value, std::string place) : value_(value), place_(std::move(place)) {}

  const void* value_;  // a JSON value of the library that sources alone may see
  std::string place_;
};

class JsonFile {
 public:
  // Throws Error(kProtocol) for what is no JSON object, and for one that is nested too deep.
  JsonFile(std::string_view json, std::string_view source);

  JsonPart root() const;

 private:
  std::string source_;
  std::shared_ptr<const void> value_;
};

}  // namespace lockstep::data
