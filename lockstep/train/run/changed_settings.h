// How the settings of a run differ from those that it, or one of its checkpoints, was stored with.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/base/config/config.h"

namespace lockstep::train {

// "train.seed = 2 (was 1)": what decides on a run's result and is not as the file, that of its last
// start, has it. Empty where all is, and for a file that cannot be read.
std::string changed_settings(const std::filesystem::path& file, const Config& now);

// "model.layers is 6, was 4": settings that decide on the parameters of the model and are not as in
// the TOML text `before`. Empty where all are, and for a text that is no configuration.
std::string changed_model(std::string_view before, const Config& now);

}  // namespace lockstep::train
