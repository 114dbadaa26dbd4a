// A folder that is there whole or not at all, whatever ends the process.
//
//   StagedFolder staged("runs/a/checkpoints/step-00001000");
//   write_synced(staged.path() / "one", ...);       // .step-00001000.4711-0.staged
//   staged.commit();                                // step-00001000
//
// Until it is committed it has a name of its own beside its place, and the process holds a lock on
// it. So what is found under such a name without a lock was left by a process that was killed.
#pragma once

#include <filesystem>
#include <string_view>

#include "lockstep/base/file/fd.h"

namespace lockstep::io {

class StagedFolder {
 public:
  // The folder that `target` will stand in exists. Throws Error(kSystem).
  explicit StagedFolder(const std::filesystem::path& target);
  // Takes away what was not committed.
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Puts it in place of what is at the target, which is then removed. Names are on the disk when it
  // returns; files are where they were written so (io/hashed_file.h). Throws Error(kSystem).
  void commit();

 private:
  bool take(int attempt);

  std::filesystem::path target_;
  std::filesystem::path path_;
  UniqueFd lock_;
  bool committed_ = false;
};

bool is_staged_name(std::string_view name);

// Removes what killed processes left in a folder; what cannot be removed stays. Where a file system
// has no locks on folders, all of it stays.
void remove_stale(const std::filesystem::path& parent);

// Removes a folder, which is there whole until it is gone. Throws Error(kSystem).
void remove_folder(const std::filesystem::path& folder);

}  // namespace lockstep::io
