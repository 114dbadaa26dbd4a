// A file that grows piece by piece and appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "lockstep/base/file/fd.h"

namespace lockstep {

// Until finish() the file has no name, where the file system can do that, and then not even a
// killed process leaves anything behind; elsewhere it has another name, and goes with the object.
// What was at `path` stays until finish() puts the new file in its place. A symbolic link stays
// one. All of it throws Error(kSystem) that names the path, as when there is no more room.
class UnfinishedFile {
 public:
  // Throws Error(kInvalidArgument) where `path` is there and is no regular file.
  explicit UnfinishedFile(const std::filesystem::path& path);
  UnfinishedFile(UnfinishedFile&&) = delete;
  ~UnfinishedFile();

  void append(std::span<const std::byte> bytes);
  void overwrite(std::uint64_t offset, std::span<const std::byte> bytes);
  std::uint64_t size() const { return size_; }
  void finish();

 private:
  std::filesystem::path target_;
  std::filesystem::path other_name_;  // the file's until finish()
  bool named_ = false;
  UniqueFd file_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep
