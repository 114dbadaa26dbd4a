// Files of a line per step, as a run that is resumed finds them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace lockstep::train {

// The step that a line tells of; nothing for what is not ours to read.
using StepOfLine = std::function<std::optional<std::int64_t>(const std::string&)>;

// Takes the lines of `first_step` and of later steps out, for they will come again, and those that
// cannot be read: a reader of the file would stumble over them as we did. Throws Error(kSystem).
void keep_steps_before(std::int64_t first_step, const std::filesystem::path& path,
                       const StepOfLine& step_of);

}  // namespace lockstep::train
