// A rank of `lockstep train` in this process.
#pragma once

#include "lockstep/launch/world.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/run/run.h"
#include "lockstep/train/stop_signal.h"

namespace lockstep::cli {

// Trains as one of `ranks`; rank 0 has the observers.
train::RunOutcome train_as(const train::RunSettings& settings, const train::RunRanks& ranks,
                           const train::StopSignal& stop);

// Meets the other ranks of the world and trains with them. Returns the exit code.
//
// Where a launcher of lockstep restarts ranks (launch/rank_link.h) this one reports every step, and
// errors that would come again. If others are lost and it can continue (train/run/survival.h), or
// if all are to continue in another number, it waits for the next generation and trains in that. A
// spare waits for its first.
int train_rank(const train::RunSettings& settings, World world);

int exit_code_of(train::RunOutcome outcome);

}  // namespace lockstep::cli
