#include "lockstep/comm/native/lookout.h"

#include <set>

namespace lockstep {

void Lookout::look(std::chrono::nanoseconds waited, const std::vector<int>& awaited) {
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

std::vector<int> Lookout::blame(const std::vector<int>& awaited) const {
  const std::map<int, Status> statuses = inbox_.statuses();
  std::vector<int> open = awaited;
  std::set<int> seen(awaited.begin(), awaited.end());
  std::vector<int> silent;
  while (!open.empty()) {
    const int member = open.back();
    open.pop_back();
    const auto found = statuses.find(member);
    if (found == statuses.end() || found->second.operation.sequence != history_.last().sequence) {
      silent.push_back(member);
      continue;
    }
    for (int next : found->second.awaited) {
      if (next != rank_ && seen.insert(next).second) open.push_back(next);
    }
  }
  return silent.empty() ? awaited : silent;
}

}  // namespace lockstep
