// A schedule as a drawing: ranks are columns, time runs down, every message is an arrow with the
// chunks it carries.
#pragma once

#include <string>

#include "lockstep/comm/schedule/instance.h"

namespace lockstep::cli {

std::string draw_svg(const schedule::Schedule& schedule);

}  // namespace lockstep::cli
