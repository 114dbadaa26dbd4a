// What happens to the names in folders, as the kernel reports it (inotify), in order.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/file/fd.h"

namespace lockstep::cli {

struct FolderEvent {
  enum class Kind { kCreated, kWritten, kMovedFrom, kMovedTo, kDeleted };
  Kind kind = Kind::kCreated;
  std::filesystem::path folder;  // as it was given to watch()
  std::string name;
};

class FolderWatch {
 public:
  // Throws Error(kSystem) where the kernel reports nothing.
  FolderWatch();
  void watch(const std::filesystem::path& folder);
  // What has happened since the last call.
  std::vector<FolderEvent> take();

 private:
  UniqueFd queue_;
  std::map<int, std::filesystem::path> folders_;
};

}  // namespace lockstep::cli
