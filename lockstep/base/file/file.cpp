#include "lockstep/base/file/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/base/file/regular_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Returns the errno of what failed, or 0.
int write_to(const fs::path& path, int flags, std::span<const std::string_view> pieces) {
  UniqueFd file(::open(path.c_str(), flags | O_WRONLY | O_CLOEXEC, 0666));
  if (!file) return errno;
  for (std::string_view piece : pieces) {
    while (!piece.empty()) {
      const ssize_t written = ::write(file.get(), piece.data(), piece.size());
      if (written < 0 && errno != EINTR) return errno;
      if (written > 0) piece.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  // Some file systems report a full disk only here.
  return ::close(file.release()) == 0 ? 0 : errno;
}

// Where a link leads; other paths as they are.
fs::path target_of(const fs::path& path) {
  std::error_code none;
  return fs::is_symlink(path, none) ? fs::weakly_canonical(path, none) : path;
}

// Something that is there and is no regular file: not to be put in place of.
bool is_special(const fs::path& path) {
  std::error_code none;
  const fs::file_status status = fs::status(path, none);
  return fs::exists(status) && !fs::is_regular_file(status);
}

[[noreturn]] void fail_writing(const fs::path& path, int error) {
  fail_errno(fmt::format("cannot write {}", path.string()), error);
}

int replace(const fs::path& path, std::span<const std::string_view> pieces) {
  const fs::path target = target_of(path);
  const fs::path unfinished = unfinished_name(target);
  int error = write_to(unfinished, O_CREAT | O_TRUNC, pieces);
  if (error == 0 && ::rename(unfinished.c_str(), target.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(unfinished.c_str());
  return error;
}

}  // namespace

fs::path unfinished_name(const fs::path& path) {
  static std::atomic<unsigned> files{0};
  fs::path name = path;
  name += fmt::format(".{}-{}.tmp", ::getpid(), files++);
  return name;
}

void write_file(const fs::path& path, std::string_view text) {
  write_file(path, std::span<const std::string_view>(&text, 1));
}

void write_file(const fs::path& path, std::span<const std::string_view> pieces) {
  const int error = is_special(path) ? write_to(path, 0, pieces) : replace(path, pieces);
  if (error != 0) fail_writing(path, error);
}

void check_can_write(const fs::path& path) {
  std::error_code none;
  if (fs::is_directory(path, none)) fail_writing(path, EISDIR);
  const fs::path folder = target_of(path).parent_path();
  const fs::path asked = is_special(path) ? path : folder.empty() ? fs::path(".") : folder;
  if (::access(asked.c_str(), W_OK) != 0) fail_writing(path, errno);
  if (asked != path && !fs::is_directory(asked, none)) fail_writing(path, ENOTDIR);
}

std::string read_file(const fs::path& path, std::size_t most) {
  const auto [file, bytes] = open_regular(path);
  if (bytes > most) {
    fail(ErrorCode::kInvalidArgument, "{} has {} bytes; at most {} were expected", path.string(),
         bytes, most);
  }
  std::string text(bytes, '\0');
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = ::read(file.get(), text.data() + done, bytes - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_errno(fmt::format("cannot read {}", path.string()), errno);
    if (count == 0) break;  // it has become shorter meanwhile
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace lockstep
