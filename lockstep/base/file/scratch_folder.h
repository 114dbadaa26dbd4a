// A new, empty temporary folder, removed with its content on destruction.
#pragma once

#include <filesystem>

namespace lockstep {

class ScratchFolder {
 public:
  // Creates the folder in TMPDIR. Throws Error(kSystem).
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep
