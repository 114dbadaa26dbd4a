#include "lockstep/base/file/unfinished_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kUsualMode = 0666;  // less what the umask takes

[[noreturn]] void fail_unfinished(const fs::path& path, int error) {
  fail_errno(fmt::format("cannot write {}", path.string()), error);
}

}  // namespace

UnfinishedFile::UnfinishedFile(const fs::path& path) : target_(path) {
  std::error_code none;
  if (fs::is_symlink(path, none)) target_ = fs::weakly_canonical(path, none);
  const fs::file_status status = fs::status(target_, none);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    fail(ErrorCode::kInvalidArgument, "{} exists and is not a regular file; it is not overwritten",
         target_.string());
  }
  other_name_ = unfinished_name(target_);
  const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  file_ = UniqueFd(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kUsualMode));
  if (file_) return;
  // Not every file system has nameless files.
  file_ =
      UniqueFd(::open(other_name_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, kUsualMode));
  if (!file_) fail_unfinished(target_, errno);
  named_ = true;
}

UnfinishedFile::~UnfinishedFile() {
  if (named_) ::unlink(other_name_.c_str());
}

void UnfinishedFile::append(std::span<const std::byte> bytes) {
  overwrite(size_, bytes);
  size_ += bytes.size();
}

void UnfinishedFile::overwrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_unfinished(target_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void UnfinishedFile::finish() {
  if (!named_) {
    // A nameless file can be given a name that is free, but not put in the place of another.
    const std::string itself = fmt::format("/proc/self/fd/{}", file_.get());
    ::unlink(other_name_.c_str());
    if (::linkat(AT_FDCWD, itself.c_str(), AT_FDCWD, other_name_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      fail_unfinished(target_, errno);
    }
    named_ = true;
  }
  if (::close(file_.release()) != 0) fail_unfinished(target_, errno);
  if (::rename(other_name_.c_str(), target_.c_str()) != 0) fail_unfinished(target_, errno);
  named_ = false;
}

}  // namespace lockstep
