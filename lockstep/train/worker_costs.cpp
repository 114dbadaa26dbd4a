#include "lockstep/train/worker_costs.h"

#include <algorithm>

namespace lockstep::train {

std::optional<WorkerCosts> costs_of_workers(std::span<const parallel::StepCost> costs,
                                            int workers) {
  if (workers < 2 || costs.empty()) return std::nullopt;
  const auto known = static_cast<double>(costs.size());
  WorkerCosts all;
  for (const parallel::StepCost& one : costs) {
    all.compute_seconds += one.compute_seconds / known;
    all.communication_seconds += one.communication_seconds / known;
    all.exposed_seconds = std::max(all.exposed_seconds, one.exposed_seconds);
    all.bytes_sent += one.bytes_sent;
    all.staleness += one.staleness / known;
  }
  if (costs.size() < 2) return all;
  const auto slowest = std::ranges::max_element(costs, {}, &parallel::StepCost::compute_seconds);
  all.slowest_rank = static_cast<int>(slowest - costs.begin());
  all.slowest_seconds = slowest->compute_seconds;
  return all;
}

}  // namespace lockstep::train
