// Error messages for invalid command lines.
#pragma once

#include <string>

#include "lockstep/cli/command.h"

namespace lockstep::cli {

// One sentence about the error: an unknown command or flag, with the nearest one; a missing
// command; else the parser's message. Then where to read more.
std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace lockstep::cli
