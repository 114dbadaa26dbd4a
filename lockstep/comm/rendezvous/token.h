// The shared secret of a job.
//
// It travels in the environment (LOCKSTEP_TOKEN) or in a file that only its owner can read, never
// on a command line, in a log or over a connection.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/base/config/environment.h"

namespace lockstep {

inline constexpr const char* kTokenVariable = "LOCKSTEP_TOKEN";
inline constexpr const char* kTokenFileVariable = "LOCKSTEP_TOKEN_FILE";

struct Token {
  std::array<std::byte, 32> bytes;
  friend bool operator==(const Token&, const Token&) = default;
};

Token mint_token();

// 64 hexadecimal digits. `origin` names the source in the error; the text itself is never quoted.
std::string token_text(const Token& token);
Token parse_token(std::string_view text, std::string_view origin);

// The token of LOCKSTEP_TOKEN; else of the file LOCKSTEP_TOKEN_FILE; else of lockstep/token in
// XDG_CONFIG_HOME or ~/.config, which is created with a new token if it is missing. A file that
// others can read, or that has another owner, is rejected.
Token find_token(const EnvironmentLookup& environment = process_environment());

}  // namespace lockstep
