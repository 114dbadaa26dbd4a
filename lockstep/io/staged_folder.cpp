#include "lockstep/io/staged_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/io/hashed_file.h"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".staged";
constexpr int kAttempts = 1000;

fs::path staged_path(const fs::path& target, int attempt) {
  return target.parent_path() /
         fmt::format(".{}.{}-{}{}", target.filename().string(), ::getpid(), attempt, kEnding);
}

UniqueFd open_folder(const fs::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

// Another process removed it, or removed it and made another.
bool is_still_at(const fs::path& path, int folder) {
  struct stat at_path {};
  struct stat open {};
  return ::stat(path.c_str(), &at_path) == 0 && ::fstat(folder, &open) == 0 &&
         at_path.st_ino == open.st_ino && at_path.st_dev == open.st_dev;
}

// Of "." or "a/" too.
fs::path with_name(const fs::path& target) {
  const fs::path whole = fs::absolute(target).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

[[noreturn]] void fail_making(const fs::path& target, int error) {
  fail_errno(fmt::format("cannot make {}", target.string()), error);
}

// What is at `to`, if anything, is at `from` afterwards.
int put_in_place(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return 0;
  if (errno != ENOTEMPTY && errno != EEXIST) return errno;
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system that cannot exchange: for a moment there is neither.
  fs::path aside = from;
  aside.replace_filename(fmt::format(".{}", from.filename().string()));
  if (::rename(to.c_str(), aside.c_str()) != 0) return errno;
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    ::rename(aside.c_str(), to.c_str());
    return error;
  }
  return ::rename(aside.c_str(), from.c_str()) == 0 ? 0 : errno;
}

}  // namespace

bool StagedFolder::take(int attempt) {
  path_ = staged_path(target_, attempt);
  if (::mkdir(path_.c_str(), 0777) != 0) {
    if (errno == EEXIST) return false;
    fail_making(target_, errno);
  }
  lock_ = open_folder(path_);
  if (!lock_ && errno == ENOENT) return false;
  if (!lock_) {
    const int error = errno;
    ::rmdir(path_.c_str());
    fail_making(target_, error);
  }
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return is_still_at(path_, lock_.get());
}

StagedFolder::StagedFolder(const fs::path& target) : target_(with_name(target)) {
  // remove_stale() of another process may come between making and locking; then once more.
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (take(attempt)) return;
  }
  fail(ErrorCode::kSystem, "cannot make {}: every one of {} names like {} is taken",
       target_.string(), kAttempts, path_.filename().string());
}

StagedFolder::~StagedFolder() {
  if (committed_) return;
  std::error_code none;
  fs::remove_all(path_, none);
}

void StagedFolder::commit() {
  sync_folder(path_);
  if (const int error = put_in_place(path_, target_)) fail_making(target_, error);
  committed_ = true;
  sync_folder(target_.parent_path());
  std::error_code none;
  fs::remove_all(path_, none);  // what was at the target
}

bool is_staged_name(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(kEnding)) return false;
  name.remove_suffix(kEnding.size());
  const auto number = name.rfind('.');
  const std::string_view numbers = name.substr(number + 1);
  return number > 0 && numbers.size() >= 3 && numbers.find('-') != std::string_view::npos &&
         numbers.find_first_not_of("0123456789-") == std::string_view::npos;
}

void remove_stale(const fs::path& parent) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(parent, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    if (is_staged_name(at->path().filename().string())) found.push_back(at->path());
  }
  for (const fs::path& path : found) {
    const UniqueFd folder = open_folder(path);
    if (!folder || ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (is_still_at(path, folder.get())) fs::remove_all(path, error);
  }
}

void remove_folder(const fs::path& folder) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const fs::path aside = staged_path(folder, attempt);
    if (::rename(folder.c_str(), aside.c_str()) == 0) {
      std::error_code error;
      fs::remove_all(aside, error);
      if (error) fail_errno(fmt::format("cannot remove {}", folder.string()), error.value());
      return;
    }
    if (errno != ENOTEMPTY && errno != EEXIST) break;
  }
  fail_errno(fmt::format("cannot remove {}", folder.string()), errno);
}

}  // namespace lockstep::io
