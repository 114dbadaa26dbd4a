// The communicators of which a hierarchical one is made.
#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"

namespace lockstep::hierarchical {

// Members are closed from the last to the first.
struct Levels {
  std::unique_ptr<Communicator> inside;  // the ranks of this node, by place
  SymmetricBuffer staging;               // of `inside`
  std::unique_ptr<Communicator> across;  // the lane of this rank, by node
  std::unique_ptr<Communicator> flat;    // all ranks
};

}  // namespace lockstep::hierarchical
