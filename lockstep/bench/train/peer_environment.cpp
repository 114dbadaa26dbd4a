#include "lockstep/bench/train/peer_environment.h"

#include <unistd.h>

namespace lockstep::bench {
namespace {

// An allocator that keeps what it has had, as PyTorch's CPU tuning guide asks for, where there is
// one; else glibc's.
std::string preloaded_allocator() {
  for (const char* folder :
       {"/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/", "/usr/lib/"}) {
    for (const char* library :
         {"libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libjemalloc.so.2"}) {
      std::string path = std::string(folder) + library;
      if (::access(path.c_str(), R_OK) == 0) return path;
    }
  }
  return "";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> peer_environment(int threads) {
  const std::string count = std::to_string(threads);
  std::vector<std::pair<std::string, std::string>> variables{
      {"OMP_NUM_THREADS", count}, {"MKL_NUM_THREADS", count}, {"THP_MEM_ALLOC_ENABLE", "1"}};
  if (const std::string allocator = preloaded_allocator(); !allocator.empty()) {
    variables.emplace_back("LD_PRELOAD", allocator);
  }
  return variables;
}

}  // namespace lockstep::bench
