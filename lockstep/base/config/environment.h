// Environment variables, behind an interface that tests can replace.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lockstep {

// The value of a variable; nothing when it is unset. An empty value counts as unset.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Reads the environment of this process.
EnvironmentLookup process_environment();

}  // namespace lockstep
