#include "lockstep/live/line_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lockstep::live {
namespace {

constexpr std::size_t kBlock = std::size_t{256} << 10;

UniqueFd open_to_read(const std::filesystem::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

// The bytes that were read; 0 at the end, and where reading fails.
std::size_t read_at(int file, std::string& block, std::size_t most, std::uint64_t offset) {
  block.resize(most);
  ssize_t count = 0;
  do {
    count = ::pread(file, block.data(), most, static_cast<off_t>(offset));
  } while (count < 0 && errno == EINTR);
  block.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return block.size();
}

}  // namespace

// Whether there is a file, opened; begins again where it is another one.
bool LineTail::open_again(const Reader& reader) {
  struct stat info {};
  const bool there = ::stat(path_.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  const bool same = there && file_ && info.st_dev == device_ && info.st_ino == inode_ &&
                    static_cast<std::uint64_t>(info.st_size) >= read_;
  if (same) return true;
  if (file_ || read_ > 0) reader.begins_again();
  file_ = UniqueFd();
  inode_ = 0;
  read_ = 0;
  rest_.clear();
  too_long_ = false;
  if (!there) return false;
  file_ = open_to_read(path_);
  if (!file_ || ::fstat(file_.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    file_ = UniqueFd();
    return false;
  }
  device_ = info.st_dev;
  inode_ = info.st_ino;
  return true;
}

bool LineTail::poll(std::size_t most_bytes, const Reader& reader) {
  if (!open_again(reader)) return false;
  std::string block;
  for (std::size_t done = 0; done < most_bytes;) {
    const std::size_t count = read_at(file_.get(), block, kBlock, read_);
    if (count == 0) return false;
    done += count;
    std::string_view left = block;
    std::uint64_t at = read_;
    read_ += count;
    for (auto end = left.find('\n'); end != std::string_view::npos; end = left.find('\n')) {
      const std::string_view part = left.substr(0, end);
      if (std::exchange(too_long_, false)) {
        // The end of one that is passed over.
      } else if (rest_.empty()) {
        reader.line(part, at);
      } else {
        rest_ += part;
        reader.line(rest_, at + end - rest_.size());
      }
      rest_.clear();
      left.remove_prefix(end + 1);
      at += end + 1;
    }
    if (too_long_) continue;
    rest_ += left;
    if (rest_.size() > kMostLine) {
      too_long_ = true;
      rest_.clear();
    }
  }
  return true;
}

bool read_lines(const std::filesystem::path& path, ino_t inode, std::uint64_t offset,
                const std::function<bool(std::string_view line)>& visit) {
  const UniqueFd file = open_to_read(path);
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || info.st_ino != inode) return false;
  std::string block;
  std::string rest;
  while (read_at(file.get(), block, kBlock, offset) > 0) {
    offset += block.size();
    std::string_view left = block;
    for (auto end = left.find('\n'); end != std::string_view::npos; end = left.find('\n')) {
      rest += left.substr(0, end);
      if (!visit(rest)) return true;
      rest.clear();
      left.remove_prefix(end + 1);
    }
    rest += left;
    if (rest.size() > LineTail::kMostLine) rest.clear();  // and its end is no line that can be read
  }
  return true;
}

}  // namespace lockstep::live
