// Files that are read: regular ones and nothing else.
#pragma once

#include <cstddef>
#include <filesystem>

#include "lockstep/base/file/fd.h"

namespace lockstep {

struct RegularFile {
  UniqueFd descriptor;    // for reading
  std::size_t bytes = 0;  // when it was opened
};

// Throws Error(kSystem) where `path` cannot be opened, and Error(kInvalidArgument) for a folder, a
// pipe or a device: a pipe would make its reader wait for a writer, and a device may have no end.
// Never waits.
RegularFile open_regular(const std::filesystem::path& path);

}  // namespace lockstep
