// The plan of a bench of collectives.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/bench/collectives/measure.h"

namespace lockstep::bench {

struct CollectivesPlan {
  std::vector<Collective> ops{Collective::kAllReduce};
  std::vector<DType> dtypes{DType::kF32};
  std::vector<int> ranks{2};
  std::vector<std::size_t> sizes;
  int root = 0;
  bool peers = false;
  std::vector<std::string> algorithms;  // to force, each a contender of its own
  std::vector<std::string> only;        // names of implementations; empty: all
  Effort effort;
  std::filesystem::path json;     // empty: none
  std::filesystem::path command;  // the `lockstep` program
  std::filesystem::path peers_folder;
};

// The implementations that take part in an op, in the order in which they are shown. One whose
// algorithm the op does not have is not among them.
std::vector<Implementation> contenders(const CollectivesPlan& plan, Collective op);

// Validates the plan before anything is started: throws for an algorithm that no op has, and for an
// unknown implementation in `only`. Removes ops without implementations. Returns a sentence for
// each algorithm and op that is left out.
std::vector<std::string> settle(CollectivesPlan& plan);

}  // namespace lockstep::bench
