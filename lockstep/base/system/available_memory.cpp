// A control group is a folder in a mounted file system. /proc/self/cgroup says which group this
// process is in:
//
//   0::/user.slice/job           version 2, which has one tree for everything
//   4:memory:/docker/1234        version 1, which has a tree for memory
//
// /proc/self/mountinfo says where the trees are mounted, and which group of the tree the mount
// shows as its top: a container may see no more than its own.
#include "lockstep/base/system/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "lockstep/base/text/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kKibi = 1024;

// A number at the start of a file; nothing for "max".
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

std::optional<std::size_t> free_of_machine(const std::string& root) {
  const auto kibibytes = field_of(root + "/proc/meminfo", "MemAvailable:");
  if (!kibibytes) return std::nullopt;
  return *kibibytes * kKibi;
}

// The names of the files in a group's folder.
struct GroupVersion {
  std::vector<std::string> limits;
  std::string used;
  std::string idle;  // the field of memory.stat
};
const GroupVersion kVersion1{.limits = {"/memory.limit_in_bytes"},
                             .used = "/memory.usage_in_bytes",
                             .idle = "total_inactive_file"};
const GroupVersion kVersion2{
    .limits = {"/memory.max", "/memory.high"}, .used = "/memory.current", .idle = "inactive_file"};

bool names_memory(std::string_view list) {
  const auto words = split_text(list, ',');
  return std::find(words.begin(), words.end(), "memory") != words.end();
}

// A tree of groups that limits memory, where it is mounted.
struct MountedTree {
  std::string top;    // the group that the mount shows: "/"
  std::string place;  // "/sys/fs/cgroup/memory"
};

// Lines like "35 31 0:32 / /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory".
std::optional<MountedTree> find_tree(const std::string& root, bool version_2) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash));
    std::istringstream behind(line.substr(dash + 3));
    std::string number, parent, device, kind, source, options;
    MountedTree tree;
    before >> number >> parent >> device >> tree.top >> tree.place;
    behind >> kind >> source >> options;
    if (version_2 ? kind == "cgroup2" : kind == "cgroup" && names_memory(options)) return tree;
  }
  return std::nullopt;
}

// The group as the mount shows it: "" is its top.
std::string below_top(std::string group, const MountedTree& tree) {
  if (tree.top != "/") {
    const bool inside = group.starts_with(tree.top) &&
                        (group.size() == tree.top.size() || group[tree.top.size()] == '/');
    group = inside ? group.substr(tree.top.size()) : "";
  }
  return group == "/" || group.starts_with("/..") ? "" : group;
}

std::size_t free_below(std::size_t limit, std::size_t used, std::size_t idle) {
  const std::size_t held = used - std::min(used, idle);
  return limit - std::min(limit, held);
}

// The free memory of one group and its parents.
std::optional<std::size_t> free_of_group(const std::string& root, const MountedTree& tree,
                                         std::string group, const GroupVersion& version) {
  std::optional<std::size_t> least;
  for (;; group.erase(group.find_last_of('/'))) {
    const std::string folder = root + tree.place + group;
    const auto used = number_in(folder + version.used);
    // The kernel frees inactive pages of files when memory is needed.
    const std::size_t idle = field_of(folder + "/memory.stat", version.idle).value_or(0);
    for (const std::string& name : version.limits) {
      const auto limit = number_in(folder + name);
      if (!limit || !used) continue;
      const std::size_t free = free_below(*limit, *used, idle);
      least = std::min(least.value_or(free), free);
    }
    if (group.find_last_of('/') == std::string::npos) return least;
  }
}

std::optional<std::size_t> free_of_groups(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::optional<std::size_t> least;
  for (std::string line; std::getline(file, line);) {
    const std::size_t list = line.find(':') + 1;
    const std::size_t path = line.find(':', list);
    if (list == 0 || path == std::string::npos) continue;
    const bool version_2 = line.starts_with("0::");
    if (!version_2 && !names_memory(std::string_view(line).substr(list, path - list))) continue;
    const auto tree = find_tree(root, version_2);
    if (!tree) continue;
    const auto free = free_of_group(root, *tree, below_top(line.substr(path + 1), *tree),
                                    version_2 ? kVersion2 : kVersion1);
    if (free) least = std::min(least.value_or(*free), *free);
  }
  return least;
}

}  // namespace

std::size_t available_memory_bytes(const std::string& root) {
  const auto machine = free_of_machine(root);
  const auto groups = free_of_groups(root);
  if (!machine && !groups) return 0;
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  return std::min(machine.value_or(kMost), groups.value_or(kMost));
}

}  // namespace lockstep
