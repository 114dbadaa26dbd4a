// A folder that appears complete or not at all, even if the process is killed.
//
//   StagedFolder staged("runs/a/checkpoints/step-00001000");
//   write_synced(staged.path() / "one", ...);       // .step-00001000.4711-0.staged
//   staged.commit();                                // step-00001000
//
// Until it is committed it has a temporary name beside the target, and the process holds a lock on
// it. So a folder with such a name and without a lock was left by a killed process.
#pragma once

#include <filesystem>
#include <string_view>

#include "lockstep/base/file/fd.h"

namespace lockstep::io {

class StagedFolder {
 public:
  // The parent folder of `target` must exist. Throws Error(kSystem).
  explicit StagedFolder(const std::filesystem::path& target);
  // Removes the folder unless it was committed.
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Replaces what is at the target. Names are on the disk on return; files are, too, if they were
  // synced (io/hashed_file.h). Throws Error(kSystem).
  void commit();

 private:
  bool take(int attempt);

  std::filesystem::path target_;
  std::filesystem::path path_;
  UniqueFd lock_;
  bool committed_ = false;
};

bool is_staged_name(std::string_view name);

// Removes what killed processes left in a folder, as far as possible. Does nothing on file systems
// without locks on folders.
void remove_stale(const std::filesystem::path& parent);

// Removes a folder atomically: it is renamed first. Throws Error(kSystem).
void remove_folder(const std::filesystem::path& folder);

}  // namespace lockstep::io
