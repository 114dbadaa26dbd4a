// The variables that PyTorch's CPU tuning guide asks for.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::bench {

// Sets the number of threads, and a caching allocator if one is installed.
std::vector<std::pair<std::string, std::string>> peer_environment(int threads);

}  // namespace lockstep::bench
