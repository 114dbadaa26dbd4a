// A file that only grows, a record at a time.
#pragma once

#include <filesystem>
#include <string_view>

#include "lockstep/base/file/fd.h"

namespace lockstep {

// Every record goes to the end of the file in one call of the system, whoever else writes there: a
// reader, or a crash, finds whole records and at most one torn one at the end. One thread.
class AppendFile {
 public:
  AppendFile() = default;  // none; append() must not be called
  // Opens the file, or makes an empty one. Throws Error(kSystem), also for a pipe without a reader.
  explicit AppendFile(std::filesystem::path path);

  // Throws Error(kSystem) where not all of `record` could be written.
  void append(std::string_view record);

  explicit operator bool() const { return static_cast<bool>(file_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd file_;
};

}  // namespace lockstep
