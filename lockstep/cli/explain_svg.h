// A schedule as a drawing: ranks are columns, time runs down, every message is an arrow with the
// chunks it carries.
#pragma once

#include <string>

#include "lockstep/comm/schedule/instance.h"

namespace lockstep::cli {

std::string draw_svg(const schedule::Schedule& schedule);

// Writes to a temporary name beside `path` and renames, so that nobody sees half a file.
void write_file(const std::string& path, const std::string& text);

}  // namespace lockstep::cli
