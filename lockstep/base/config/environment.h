// Environment variables, behind a seam that tests can stand in for.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lockstep {

// The value of a variable; nothing when it is unset. An empty value counts as unset.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// That of this process.
EnvironmentLookup process_environment();

}  // namespace lockstep
