#include "lockstep/comm/rendezvous/token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/base/net/hmac.h"
#include "lockstep/base/text/hex.h"
#include "lockstep/base/text/text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Nothing when there is no such file.
std::optional<Token> read_token_file(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) fail_errno("cannot read the token file " + path.string(), errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) fail_errno("cannot examine " + path.string(), errno);
  if ((info.st_mode & 077) != 0) {
    fail(ErrorCode::kUnauthorized,
         "the token file {} can be read or changed by others (mode {:o}); run: chmod 600 {}",
         path.string(), info.st_mode & 0777, path.string());
  }
  if (info.st_uid != ::geteuid()) {
    fail(ErrorCode::kUnauthorized,
         "the token file {} belongs to user {}, and this process runs as user {}; use a token file "
         "of your own (see {})",
         path.string(), info.st_uid, ::geteuid(), kTokenFileVariable);
  }
  std::array<char, 256> text;
  const ssize_t got = ::read(fd.get(), text.data(), text.size());
  if (got < 0) fail_errno("cannot read the token file " + path.string(), errno);
  return parse_token({text.data(), static_cast<std::size_t>(got)}, path.string());
}

// Makes the file with a fresh token, complete from the moment it has its name. When another
// process was first, its token stays.
void create_token_file(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path.parent_path().parent_path(), error);
  if (::mkdir(path.parent_path().c_str(), 0700) != 0 && errno != EEXIST) {
    fail_errno("cannot make the folder " + path.parent_path().string() + " for the token", errno);
  }
  std::array<std::byte, 8> suffix;
  fill_random(suffix);
  const fs::path draft = path.string() + "." + to_hex(suffix);
  const UniqueFd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) fail_errno("cannot write the token file " + draft.string(), errno);
  const std::string text = token_text(mint_token()) + "\n";
  const bool written =
      ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(fd.get()) == 0;
  const bool linked = written && ::link(draft.c_str(), path.c_str()) == 0;
  const int problem = errno;
  ::unlink(draft.c_str());
  if (!linked && problem != EEXIST) {
    fail_errno("cannot write the token file " + path.string(), problem);
  }
}

fs::path default_token_file(const EnvironmentLookup& environment) {
  if (const auto config = environment("XDG_CONFIG_HOME"))
    return fs::path(*config) / "lockstep/token";
  if (const auto home = environment("HOME")) return fs::path(*home) / ".config/lockstep/token";
  fail(ErrorCode::kUnauthorized,
       "no token was found: {}, {} and HOME are unset; set {} to the name of a file that holds the "
       "output of 'openssl rand -hex 32'",
       kTokenVariable, kTokenFileVariable, kTokenFileVariable);
}

}  // namespace

Token mint_token() {
  Token token;
  fill_random(token.bytes);
  return token;
}

std::string token_text(const Token& token) { return to_hex(token.bytes); }

Token parse_token(std::string_view text, std::string_view origin) {
  Token token;
  const auto bytes = from_hex(trim(text));
  if (!bytes || bytes->size() != token.bytes.size()) {
    fail(ErrorCode::kUnauthorized,
         "{} does not hold a token: expected {} hexadecimal digits, as 'openssl rand -hex {}' "
         "prints them",
         origin, 2 * token.bytes.size(), token.bytes.size());
  }
  std::ranges::copy(*bytes, token.bytes.begin());
  return token;
}

Token find_token(const EnvironmentLookup& environment) {
  if (const auto text = environment(kTokenVariable)) return parse_token(*text, kTokenVariable);
  if (const auto file = environment(kTokenFileVariable)) {
    if (const auto token = read_token_file(*file)) return *token;
    fail(ErrorCode::kUnauthorized,
         "the token file {} (from {}) does not exist; make it with: (umask 077; openssl rand -hex "
         "32 > {})",
         *file, kTokenFileVariable, *file);
  }
  const fs::path path = default_token_file(environment);
  if (const auto token = read_token_file(path)) return *token;
  create_token_file(path);
  if (const auto token = read_token_file(path)) return *token;
  fail(ErrorCode::kUnauthorized, "the token file {} was removed while it was being made",
       path.string());
}

}  // namespace lockstep
