#include "lockstep/train/observe/worker_costs.h"

#include <algorithm>

namespace lockstep::train {

std::optional<WorkerCosts> costs_of_workers(std::span<const parallel::StepCost> costs, int ranks,
                                            int ranks_per_worker) {
  const auto known = std::ranges::count_if(costs, &parallel::StepCost::known);
  if (ranks < 2 || known == 0) return std::nullopt;
  const auto share = 1 / static_cast<double>(known);
  WorkerCosts all;
  for (std::size_t worker = 0; worker < costs.size(); ++worker) {
    const parallel::StepCost& one = costs[worker];
    if (!one.known) continue;
    all.compute_seconds += one.compute_seconds * share;
    all.communication_seconds += one.communication_seconds * share;
    all.exposed_seconds += one.exposed_seconds * share;
    all.longest_exposed_seconds = std::max(all.longest_exposed_seconds, one.exposed_seconds);
    all.bytes_sent += one.bytes_sent;
    all.bytes_across += one.bytes_across;
    all.staleness += one.staleness * share;
    all.most_stale = std::max(all.most_stale, one.staleness);
    const bool slowest = all.slowest_rank < 0 || one.compute_seconds > all.slowest_seconds;
    if (known < 2 || !slowest) continue;
    all.slowest_rank = static_cast<int>(worker) * ranks_per_worker;
    all.slowest_seconds = one.compute_seconds;
  }
  return all;
}

}  // namespace lockstep::train
