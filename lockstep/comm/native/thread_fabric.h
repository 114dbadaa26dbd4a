// The Fabric of ranks that are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/comm/native/fabric.h"

namespace lockstep {

// One fabric per rank; they find each other through state they share.
std::vector<std::shared_ptr<Fabric>> make_thread_fabrics(int ranks,
                                                         std::chrono::nanoseconds timeout);

}  // namespace lockstep
