// An all-gather of texts of any length.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep {

// Called by all ranks together. Returns the texts of all ranks, by rank.
std::vector<std::string> exchange_texts(Communicator& communicator, const std::string& mine);

}  // namespace lockstep
