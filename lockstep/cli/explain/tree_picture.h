// A schedule as the tree along which its ranks reduce, and the same tree for the way back.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/comm/schedule/instance.h"

namespace lockstep::cli {

// Throws Error(kInvalidArgument) where the messages that are combined form no tree.
std::string draw_trees(const schedule::Schedule& schedule, std::string title,
                       std::string_view note);

}  // namespace lockstep::cli
