// A file that only grows, a record at a time.
#pragma once

#include <filesystem>
#include <string_view>

#include "lockstep/base/file/fd.h"

namespace lockstep {

// Appends each record with one system call, so records of several writers do not mix: a reader, or
// a crash, finds whole records and at most one incomplete record at the end. Not thread-safe.
class AppendFile {
 public:
  AppendFile() = default;  // none; append() must not be called
  // Opens the file, or makes an empty one. Throws Error(kSystem), also for a pipe without a reader.
  explicit AppendFile(std::filesystem::path path);

  // Throws Error(kSystem) if `record` could not be written completely.
  void append(std::string_view record);

  explicit operator bool() const { return static_cast<bool>(file_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd file_;
};

}  // namespace lockstep
