// `lockstep plan CONFIG.toml key=value ... --ranks N`: the memory, the traffic and the FLOPs of one
// worker of a run, and the same at every stage of ZeRO with every recomputation.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::cli {

struct RunQuestion {
  std::vector<std::string> arguments;  // a configuration file, if the first has no '=' in it, and
                                       // settings
  std::vector<int> ranks;  // of several numbers the first is planned, and all are compared
  std::size_t budget = 0;  // bytes: marks what fits; 0: memory.limit
  bool json = false;
};

// Prints the plan, and then throws Error(kInvalidArgument) where it is over memory.limit.
void plan_run(const RunQuestion& question);

}  // namespace lockstep::cli
