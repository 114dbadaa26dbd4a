// A read-only memory mapping of a file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace lockstep {

// A file mapped read-only for as long as the object lives; moving hands the mapping on. Any number
// of threads may read at once.
//
// Another process may shorten the file meanwhile. Reads behind the new end then return zeros, and
// check_whole() throws: call it after reading bytes and before using them. For this the first
// mapping installs a handler of SIGBUS. A SIGBUS outside all mappings goes to the previous handler.
class MappedFile {
 public:
  MappedFile();  // no bytes
  // Throws Error(kSystem) where it cannot be opened, and Error(kInvalidArgument) for what is no
  // regular file. An empty file has no bytes.
  enum class Watch {
    kPages,  // check_whole() notices where whole pages were asked for that are gone
    kSize,   // it notices that the file became shorter by any byte, and a descriptor stays open
  };
  explicit MappedFile(const std::filesystem::path& path, Watch watch = Watch::kPages);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  // Throws Error(kProtocol) where the file is shorter now than when it was mapped.
  void check_whole() const;

 private:
  struct Mapping;
  std::span<const std::byte> bytes_;
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace lockstep
