// `lockstep bench collectives`: this library and its peers, interleaved in one run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/bench/measure.h"

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

// Prints as it goes; true when every result was correct and no job failed.
bool run_collectives(const CollectivesPlan& plan);

}  // namespace lockstep::bench
