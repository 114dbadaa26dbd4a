// The place of a rank in its job.
#pragma once

#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/make_strategy.h"
#include "lockstep/train/run/resolve.h"
#include "lockstep/train/run/run.h"

namespace lockstep::train {

// `world` is nullptr for a single rank. Throws what parallel::workers_of() throws.
JobShape shape_of_job(const RunSettings& settings, Communicator* world, const RunRanks& ranks);
parallel::StrategyJob strategy_job(const RunOptions& options, const RunRanks& ranks);
// What a spare does before it joins a job of `workers` that runs: reads and computes what does not
// depend on its place, so that the machine's caches have it. Throws what the run would.
void warm_up(const RunSettings& settings, int workers);
// Runs a dedicated parameter server until the workers have left.
RunOutcome serve(const RunOptions& options, const RunRanks& ranks, Communicator& world,
                 const StopSignal& stop);

}  // namespace lockstep::train
