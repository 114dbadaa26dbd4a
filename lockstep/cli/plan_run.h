// `lockstep plan CONFIG.toml key=value ...`: the memory and the FLOPs of one worker of a run.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

// `arguments`: a configuration file, if the first has no '=' in it, and settings. Prints the plan,
// and then throws Error(kInvalidArgument) where it is over memory.limit.
void plan_run(const std::vector<std::string>& arguments, bool json);

}  // namespace lockstep::cli
