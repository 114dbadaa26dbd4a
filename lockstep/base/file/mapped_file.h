// The bytes of a file, read where they lie.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

namespace lockstep {

// A file mapped read-only for as long as the object lives; moving hands the mapping on. Any number
// of threads may read at once. Should somebody shorten the file meanwhile, reading behind its new
// end is fatal.
class MappedFile {
 public:
  MappedFile() = default;  // no bytes
  // Throws Error(kSystem) where it cannot be opened, and Error(kInvalidArgument) for what is no
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
