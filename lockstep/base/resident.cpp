#include "lockstep/base/resident.h"

#include <fstream>
#include <string>

namespace lockstep {

std::size_t peak_resident_bytes() {
  constexpr std::size_t kKibi = 1024;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::size_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * kKibi;
  }
  return 0;
}

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace lockstep
