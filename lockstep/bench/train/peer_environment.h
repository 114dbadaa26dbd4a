// The variables that PyTorch's CPU tuning guide asks for.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::bench {

// So many threads, and an allocator that keeps what it has had, where there is one.
std::vector<std::pair<std::string, std::string>> peer_environment(int threads);

}  // namespace lockstep::bench
