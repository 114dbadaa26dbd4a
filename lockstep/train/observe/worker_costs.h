// A step's costs of all workers, as a few numbers that tell where its time went.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::train {

struct WorkerCosts {
  double compute_seconds = 0;          // the mean over workers, as the next two
  double communication_seconds = 0;    // in which something was under way
  double exposed_seconds = 0;          // the part of it in which compute waited for it
  double longest_exposed_seconds = 0;  // the same of the worker that waited longest
  std::uint64_t bytes_sent = 0;        // of all workers
  std::uint64_t bytes_across = 0;      // of these between machines, as they went out
  double staleness = 0;                // the mean
  double most_stale = 0;               // of the worker that was most so
  int slowest_rank = -1;               // that computed longest, the first of them; -1: not known
  double slowest_seconds = 0;          // which took it so long
};

// Of a run of so many workers; nothing where there is one. Where workers do not wait for each other
// these are the costs of each one's last share; of whom nothing is known is left out, and where one
// alone is known nobody is slowest.
std::optional<WorkerCosts> costs_of_workers(std::span<const parallel::StepCost> costs, int workers);

}  // namespace lockstep::train
