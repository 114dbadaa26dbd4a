// Error messages for invalid command lines.
#pragma once

#include <string>

#include "lockstep/cli/command.h"

namespace lockstep::cli {

// One sentence about what the parser met: a command or flag that there is not, with what it is
// called here where other programs have it, else the nearest by its letters;
// a command that is missing; else the parser's own words. Then where to read more.
std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace lockstep::cli
