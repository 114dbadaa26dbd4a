// Follows a file of lines that another process appends to.
//
// Only whole lines are visited, each once. A file that was replaced (another inode) or became
// shorter is read from its beginning again. A line longer than kMostLine is passed over. Memory
// does not depend on the length of the file. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "lockstep/base/file/fd.h"

namespace lockstep::live {

class LineTail {
 public:
  static constexpr std::size_t kMostLine = std::size_t{1} << 20;

  explicit LineTail(std::filesystem::path path) : path_(std::move(path)) {}

  struct Reader {
    std::function<void()> begins_again;  // what was visited before is void
    // `offset` is where the line begins in the file.
    std::function<void(std::string_view line, std::uint64_t offset)> line;
  };
  // Reads about `most_bytes` of what is new. Returns whether there is more. A file that is not
  // there, is no regular file, or cannot be read counts as one without lines.
  bool poll(std::size_t most_bytes, const Reader& reader);

  // Identifies the file that is being read: the inode's number; 0: none.
  ino_t inode() const { return inode_; }

 private:
  bool open_again(const Reader& reader);

  std::filesystem::path path_;
  UniqueFd file_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::uint64_t read_ = 0;  // bytes of the file that were read
  std::string rest_;        // of these, the last line so far
  bool too_long_ = false;   // it is passed over
};

// Visits the whole lines of `path` from `offset` on, until `visit` returns false. Returns false
// where the file is not there or not the one with that inode.
bool read_lines(const std::filesystem::path& path, ino_t inode, std::uint64_t offset,
                const std::function<bool(std::string_view line)>& visit);

}  // namespace lockstep::live
