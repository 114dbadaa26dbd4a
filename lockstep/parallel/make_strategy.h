// The strategy that the settings ask for.
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/options.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

struct StrategyJob {
  ParallelOptions options;
  optim::OptimizerOptions optimizer;
  CommOptions comm;
  std::string host;                     // where other machines reach this rank; empty: nowhere
  std::int64_t most_micro_batches = 1;  // of one worker's share of a step
};

// `job.options` have passed check(). Called by all ranks of `world` at the same time, which
// outlives it; nullptr: one worker. Ranks that are servers and nothing else call serve_strategy(),
// which returns when the workers have left.
std::unique_ptr<Strategy> make_strategy(const StrategyJob& job, Communicator* world);
void serve_strategy(const StrategyJob& job, Communicator& world);

}  // namespace lockstep::parallel
