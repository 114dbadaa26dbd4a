// Texts of any length from every rank to every rank.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep {

// Called by all ranks together; gives `mine` to all and returns everyone's, by rank.
std::vector<std::string> exchange_texts(Communicator& communicator, const std::string& mine);

}  // namespace lockstep
