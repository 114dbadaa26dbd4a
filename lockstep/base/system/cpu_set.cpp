#include "lockstep/base/system/cpu_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/base/text/text.h"

namespace lockstep {
namespace {

std::vector<int> members(const cpu_set_t& set) {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

CpuSet CpuSet::of_this_thread() {
  CpuSet cpus;
  ::sched_getaffinity(0, sizeof cpus.set_, &cpus.set_);
  return cpus;
}

std::optional<CpuSet> CpuSet::share(int index, int parts) const {
  const std::vector<int> cpus = members(set_);
  const auto total = static_cast<int>(cpus.size());
  if (parts < 2 || total == 0) return std::nullopt;
  CpuSet part;
  if (total < parts) {
    part.add(cpus[static_cast<std::size_t>(total * index / parts)]);
    return part;
  }
  for (int i = total * index / parts; i < total * (index + 1) / parts; ++i) {
    part.add(cpus[static_cast<std::size_t>(i)]);
  }
  return part;
}

std::string CpuSet::text() const { return fmt::format("{}", fmt::join(members(set_), ",")); }

CpuSet CpuSet::parse(std::string_view text) {
  CpuSet cpus;
  for (const std::string_view word : split_text(text, ',')) {
    int first = -1;
    const char* const end = word.data() + word.size();
    const char* const rest = std::from_chars(word.data(), end, first).ptr;
    int last = first;
    if (rest != end && *rest == '-') std::from_chars(rest + 1, end, last);
    if (first < 0) continue;
    for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) cpus.add(cpu);
  }
  return cpus;
}

void bind_process(pid_t pid, const CpuSet& cpus) {
  std::error_code error;  // of a process that has ended
  std::filesystem::directory_iterator entry(fmt::format("/proc/{}/task", pid), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    if (thread > 0) ::sched_setaffinity(thread, sizeof(cpu_set_t), &cpus.native());
  }
}

}  // namespace lockstep
