// A folder that a command is told to write: may it?
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace lockstep::train {

// Makes the folders above `path`. Throws Error(kInvalidArgument) where something is at `path` that
// is no folder, or a folder with a file whose name `is_ours` does not know, and Error(kSystem)
// where the folders cannot be made.
void check_replaceable(const std::filesystem::path& path,
                       const std::function<bool(std::string_view name)>& is_ours);

}  // namespace lockstep::train
