// Files with one line per step, of a resumed run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace lockstep::train {

// The step of a line; nothing for an unreadable line.
using StepOfLine = std::function<std::optional<std::int64_t>(const std::string&)>;

// Removes the lines of `first_step` and later steps, which will be repeated, and unreadable lines.
// Throws Error(kSystem).
void keep_steps_before(std::int64_t first_step, const std::filesystem::path& path,
                       const StepOfLine& step_of);

}  // namespace lockstep::train
