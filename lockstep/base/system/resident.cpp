#include "lockstep/base/system/resident.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace lockstep {
namespace {

constexpr std::size_t kResidentKibi = 1024;

}  // namespace

std::size_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::size_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * kResidentKibi;
  }
  return 0;
}

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::optional<std::size_t> proportional_bytes(pid_t process) {
  std::ifstream maps(fmt::format("/proc/{}/smaps_rollup", process));
  std::optional<std::size_t> bytes;
  for (std::string word; maps >> word;) {
    std::size_t kibibytes = 0;
    if ((word == "Pss:" || word == "SwapPss:") && maps >> kibibytes) {
      bytes = bytes.value_or(0) + kibibytes * kResidentKibi;
    }
  }
  return bytes;
}

}  // namespace lockstep
