// Makes the strategy that the settings select.
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
  std::string host;                     // the address for other nodes; empty: none
  std::int64_t most_micro_batches = 1;  // the most in one worker's share of a step
  // asp and ssp: the loss of any worker ends the generation, since all are replaced.
  bool needs_all_workers = false;
};

// `job.options` must have passed check(). Called by all ranks of `world` together, which must
// outlive it; nullptr: one worker. Ranks that are dedicated servers call serve_strategy(), which
// returns when the workers have left.
std::unique_ptr<Strategy> make_strategy(const StrategyJob& job, Communicator* world);
void serve_strategy(const StrategyJob& job, Communicator& world);

}  // namespace lockstep::parallel
