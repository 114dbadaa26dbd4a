// A read-only memory mapping of a file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

namespace lockstep {

// Maps a file for the lifetime of the object. Any number of threads may read at once. If the file
// is truncated meanwhile, reading past its new end is fatal (SIGBUS).
class MappedFile {
 public:
  MappedFile() = default;  // no bytes
  // Throws Error(kSystem) if it cannot be opened, and Error(kInvalidArgument) if it is not a
  // regular file. An empty file has no bytes.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace lockstep
