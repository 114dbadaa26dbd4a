#include "lockstep/comm/native/stall_monitor.h"

#include <set>

namespace lockstep {

void StallMonitor::look(std::chrono::nanoseconds waited, const std::vector<int>& awaited) {
  constexpr auto kStatusAfter = std::chrono::milliseconds(200);
  if (waited < kStatusAfter) return;
  const Fingerprint& current = history_.last();
  if (told_in_ != current.sequence || told_ != awaited) {
    told_in_ = current.sequence;
    told_ = awaited;
    fabric_.spread(tag_, inbox_.members, Status{current, awaited});
  }
  for (const auto& [member, status] : inbox_.statuses()) {
    history_.compare(rank_, member, status.operation);
  }
}

// Those who say that they have not come to this operation.
std::vector<int> StallMonitor::behind(const std::vector<int>& awaited) {
  constexpr auto kAnswer = std::chrono::milliseconds(500);
  const Fingerprint& current = history_.last();
  fabric_.spread(tag_, inbox_.members, Status{current, awaited, inbox_.ask()});
  std::vector<int> members;
  for (const auto& [member, operation] : inbox_.await_answers(kAnswer)) {
    if (operation < current.sequence) members.push_back(member);
  }
  return members;
}

std::vector<int> StallMonitor::blame(const std::vector<int>& awaited) {
  const std::vector<int> absent = behind(awaited);
  const std::map<int, Status> statuses = inbox_.statuses();
  std::vector<int> open = awaited;
  std::set<int> seen(awaited.begin(), awaited.end());
  std::set<int> silent(absent.begin(), absent.end());
  while (!open.empty()) {
    const int member = open.back();
    open.pop_back();
    const auto found = statuses.find(member);
    if (found == statuses.end() || found->second.operation.sequence != history_.last().sequence) {
      silent.insert(member);
      continue;
    }
    for (int next : found->second.awaited) {
      if (next != rank_ && seen.insert(next).second) open.push_back(next);
    }
  }
  if (silent.empty()) return awaited;
  return {silent.begin(), silent.end()};
}

}  // namespace lockstep
