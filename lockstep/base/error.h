// The only exception type of lockstep.
//
// A message says what was expected, what happened, on which rank, and what to do next.
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something impossible
  kMismatch,         // ranks disagree about the operation they are in
  kPeerLost,         // a rank died or left while it was needed
  kTimeout,          // a deadline passed; ranks() names who was missing
  kAborted,          // a rank called abort()
  kUnsupported,      // not supported by this build, machine or shape
  kSystem,           // the operating system refused
  kProtocol,         // malformed bytes from a peer or a file
  kUnauthorized,     // a peer could not prove the token
  kNonFinite,        // a loss or a gradient is NaN or infinite
  kCorrupted,        // bytes changed on their way between ranks, or were tampered with
};

inline constexpr ErrorCode kLastErrorCode = ErrorCode::kCorrupted;

std::string_view name(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::vector<int> ranks = {},
        std::source_location where = std::source_location::current())
      : std::runtime_error(message), code_(code), ranks_(std::move(ranks)), where_(where) {}

  ErrorCode code() const { return code_; }
  // The ranks the error is about: the dead, the missing, the ones that disagree. May be empty.
  const std::vector<int>& ranks() const { return ranks_; }
  const std::source_location& where() const { return where_; }

 private:
  ErrorCode code_;
  std::vector<int> ranks_;
  std::source_location where_;
};

// Carries the caller's location next to a format string that is checked at compile time.
template <class... Args>
struct LocatedFormat {
  template <class S>
  consteval LocatedFormat(const S& text, std::source_location at = std::source_location::current())
      : format(text), where(at) {}
  fmt::format_string<Args...> format;
  std::source_location where;
};

// Throws Error(code, formatted message) with the caller's source location.
template <class... Args>
[[noreturn]] void fail(ErrorCode code, LocatedFormat<std::type_identity_t<Args>...> format,
                       Args&&... args) {
  throw Error(code, fmt::format(format.format, std::forward<Args>(args)...), {}, format.where);
}

// Like fail(kSystem), with the text of errno appended.
[[noreturn]] void fail_errno(std::string_view what, int error_number,
                             std::source_location where = std::source_location::current());

}  // namespace lockstep
