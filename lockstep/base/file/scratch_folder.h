// A folder for what nobody needs later: new and empty, and gone with all that is in it at the end.
#pragma once

#include <filesystem>

namespace lockstep {

class ScratchFolder {
 public:
  // Where temporary files go (TMPDIR). Throws Error(kSystem).
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep
