// A file that is written in pieces and appears complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "lockstep/base/file/fd.h"

namespace lockstep {

// Until finish() the file has no name (O_TMPFILE), so a killed process leaves nothing behind. On
// file systems without O_TMPFILE it has a temporary name, and the destructor removes it. finish()
// replaces what is at `path`; a symbolic link stays one. All functions throw Error(kSystem) with
// the path, for example when the disk is full.
class UnfinishedFile {
 public:
  // Throws Error(kInvalidArgument) if `path` exists and is not a regular file.
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
