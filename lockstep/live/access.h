// Who may read the live page.
//
// A request needs the token, so that other users of the machine, and other pages in the same
// browser, read nothing. Its Host header must name this machine: a page elsewhere whose name was
// made to lead here (DNS rebinding) sends its own name.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::live {

// 128 random bits, in hexadecimal.
std::string make_token();

// The first line of the file; a missing file is made with a new token, for its owner alone. Throws
// Error(kInvalidArgument) for a token of fewer than 16 characters, or of others than letters,
// digits, '-' and '_'; and Error(kSystem).
std::string token_of_file(const std::filesystem::path& path);

// The time does not depend on where they differ.
bool is_token(std::string_view given, std::string_view token);

// Whether a Host header is an address, "localhost", or one of `names`, with any port or none.
// Addresses are fine: a page elsewhere has a name.
bool is_known_host(std::string_view header, std::span<const std::string> names);

}  // namespace lockstep::live
