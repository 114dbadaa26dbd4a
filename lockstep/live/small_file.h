// Files that are replaced as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::live {

// Tells whether a file is another one than before. All zero: there is none.
struct FileStamp {
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
// Of a regular file.
FileStamp stamp_of(const std::filesystem::path& path);

class SmallFile {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;

  explicit SmallFile(std::filesystem::path path) : path_(std::move(path)) {}

  // Its text if it is another one than at the last call; empty where it has gone, has more than
  // kMostBytes or cannot be read.
  std::optional<std::string> changed();

 private:
  std::filesystem::path path_;
  FileStamp stamp_;
};

}  // namespace lockstep::live
