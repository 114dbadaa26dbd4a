#include "lockstep/live/access.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/net/hmac.h"
#include "lockstep/base/text/hex.h"
#include "lockstep/base/text/text.h"

namespace lockstep::live {
namespace {

constexpr std::size_t kFewestCharacters = 16;
constexpr std::size_t kMostTokenBytes = 4096;

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> ignored;
  return ::inet_pton(AF_INET, host.c_str(), ignored.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), ignored.data()) == 1;
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// A new file, unless there is one meanwhile.
void write_new_token(const std::filesystem::path& path) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file && errno == EEXIST) return;
  const std::string text = make_token() + '\n';
  const bool written =
      file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written) fail_errno(fmt::format("cannot write the token file {}", path.string()), errno);
}

}  // namespace

std::string make_token() {
  std::array<std::byte, 16> bytes;
  fill_random(bytes);
  return to_hex(bytes);
}

std::string token_of_file(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) write_new_token(path);
  const std::string text = read_file(path, kMostTokenBytes);
  const std::string token(trim(split_text(text, '\n').front()));
  const bool valid = std::ranges::all_of(token, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
  });
  if (token.size() < kFewestCharacters || !valid) {
    fail(ErrorCode::kInvalidArgument,
         "{} has no token for the live page: its first line must be at least {} letters, digits, "
         "'-' and '_'. Remove the file, and it is made with a new one",
         path.string(), kFewestCharacters);
  }
  return token;
}

bool is_token(std::string_view given, std::string_view token) {
  return !token.empty() &&
         equal_in_constant_time(std::as_bytes(std::span(given)), std::as_bytes(std::span(token)));
}

bool is_known_host(std::string_view header, std::span<const std::string> names) {
  std::string host = lower_case(trim(header));
  if (host.starts_with('[')) {
    const auto end = host.find(']');
    if (end == std::string::npos) return false;
    const std::string port = host.substr(end + 1);
    if (!port.empty() && (port[0] != ':' || !is_port(std::string_view(port).substr(1)))) {
      return false;
    }
    host = host.substr(1, end - 1);
    return is_address(host);
  }
  if (const auto colon = host.find(':'); colon != std::string::npos) {
    if (!is_port(std::string_view(host).substr(colon + 1))) return false;
    host.resize(colon);
  }
  if (host == "localhost" || is_address(host)) return true;
  return !host.empty() && std::ranges::any_of(names, [&](const std::string& name) {
    return lower_case(name) == host;
  });
}

}  // namespace lockstep::live
