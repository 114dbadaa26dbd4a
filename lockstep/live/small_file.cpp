#include "lockstep/live/small_file.h"

#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"

namespace lockstep::live {

FileStamp stamp_of(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return {.inode = info.st_ino,
          .bytes = static_cast<std::uint64_t>(info.st_size),
          .changed_ns = info.st_mtim.tv_sec * kNanoseconds + info.st_mtim.tv_nsec};
}

std::optional<std::string> SmallFile::changed() {
  const FileStamp now = stamp_of(path_);
  if (now == stamp_) return std::nullopt;
  stamp_ = now;
  if (now == FileStamp{}) return "";
  try {
    return read_file(path_, kMostBytes);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace lockstep::live
