// A summary of all workers' costs of a step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::train {

struct WorkerCosts {
  double compute_seconds = 0;          // the mean over workers, as the next two
  double communication_seconds = 0;    // during which communication was running
  double exposed_seconds = 0;          // of these, while compute waited
  double longest_exposed_seconds = 0;  // the same of the worker that waited longest
  std::uint64_t bytes_sent = 0;        // of all workers
  std::uint64_t bytes_across = 0;      // of these between nodes, as actually sent
  double staleness = 0;                // the mean
  double most_stale = 0;               // the maximum over workers
  int slowest_rank = -1;               // the rank that computed longest; -1: unknown
  double slowest_seconds = 0;          // its compute time
};

// For a run of `ranks` ranks; nothing for one. Costs are those of workers, each of which may be
// several ranks. With asp and ssp these are the costs of each worker's last share. Workers without
// known costs are left out; with only one known, no worker is the slowest.
std::optional<WorkerCosts> costs_of_workers(std::span<const parallel::StepCost> costs, int ranks,
                                            int ranks_per_worker = 1);

}  // namespace lockstep::train
