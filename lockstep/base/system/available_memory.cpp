#include "lockstep/base/system/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace lockstep {
namespace {

constexpr std::size_t kKibi = 1024;

std::optional<std::size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::optional<std::size_t> field_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::size_t number = 0;
    if (word == name && file >> number) return number;
  }
  return std::nullopt;
}

std::optional<std::size_t> free_of_machine() {
  const auto kibibytes = field_of("/proc/meminfo", "MemAvailable:");
  if (!kibibytes) return std::nullopt;
  return *kibibytes * kKibi;
}

// The pages of files that nobody has used of late are given up when memory is asked for.
std::size_t free_below(std::size_t limit, std::size_t used, const std::string& statistics) {
  const std::size_t idle = field_of(statistics, "inactive_file").value_or(0);
  const std::size_t held = used - std::min(used, idle);
  return limit - std::min(limit, held);
}

// Of one group and those that hold it. The file of a group without a limit says "max".
std::optional<std::size_t> free_of_group() {
  std::ifstream file("/proc/self/cgroup");
  std::optional<std::size_t> least;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::")) continue;
    for (std::string group = line.substr(3);; group.erase(group.find_last_of('/'))) {
      const std::string folder = "/sys/fs/cgroup" + group;
      const auto limit = number_in(folder + "/memory.max");
      const auto used = number_in(folder + "/memory.current");
      if (limit && used) {
        const std::size_t free = free_below(*limit, *used, folder + "/memory.stat");
        least = std::min(least.value_or(free), free);
      }
      if (group.find_last_of('/') == std::string::npos) break;
    }
  }
  return least;
}

}  // namespace

std::size_t available_memory_bytes() {
  const auto machine = free_of_machine();
  const auto group = free_of_group();
  if (!machine && !group) return 0;
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  return std::min(machine.value_or(kMost), group.value_or(kMost));
}

}  // namespace lockstep
