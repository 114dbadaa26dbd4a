// Checks whether a command may write a folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace lockstep::train {

// Makes the folders above `path`. Throws Error(kInvalidArgument) if `path` exists and is not a
// folder, or contains a file that is not `is_ours`, and Error(kSystem) if the folders cannot be
// created.
void check_replaceable(const std::filesystem::path& path,
                       const std::function<bool(std::string_view name)>& is_ours);

}  // namespace lockstep::train
