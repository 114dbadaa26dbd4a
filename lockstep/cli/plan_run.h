// `lockstep plan CONFIG.toml key=value ... --ranks N`: the memory and the FLOPs of one worker of a
// run, and what it would take at every stage of ZeRO with every recomputation.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace lockstep::cli {

// `arguments`: a configuration file, if the first has no '=' in it, and settings. Prints the plan,
// and then throws Error(kInvalidArgument) where it is over memory.limit. With several numbers of
// ranks the first is planned, and all are compared.
void plan_run(const std::vector<std::string>& arguments, std::span<const int> ranks, bool json);

}  // namespace lockstep::cli
