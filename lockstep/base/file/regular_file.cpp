#include "lockstep/base/file/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no regular file";
}

}  // namespace

RegularFile open_regular(const std::filesystem::path& path) {
  // Without O_NONBLOCK opening a pipe without a writer would block.
  UniqueFd descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!descriptor || ::fstat(descriptor.get(), &status) != 0) {
    fail_errno(fmt::format("cannot open {}", path.string()), errno);
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, where a file was expected", path.string(),
         kind_of(status.st_mode));
  }
  return {.descriptor = std::move(descriptor), .bytes = static_cast<std::size_t>(status.st_size)};
}

}  // namespace lockstep
