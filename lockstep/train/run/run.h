// A run from its settings to its end: data, resuming, the loop of steps, validation, samples,
// checkpoints.
//
// A run is its folder: it begins where the newest checkpoint there left off, and a run that was
// interrupted, or killed at any moment, and came back has the same losses and parameters to the bit
// as one that never stopped.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/train/observe/observer.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/run/survival.h"
#include "lockstep/train/stop_signal.h"

namespace lockstep::train {

enum class RunOutcome : std::uint8_t {
  kFinished,
  kInterrupted,  // saved; to be resumed
  kRegroups,     // all ranks stopped after a step, to begin in another number; states are kept
};

// The ranks of a run: workers, and what the strategy has besides (servers).
struct RunRanks {
  Communicator* world = nullptr;  // of all of them; nullptr: one worker
  std::string host;               // where other nodes reach this rank; empty: nowhere
  Survival* survival = nullptr;   // of a process that outlives the loss of others; else nullptr
  int generation = 0;             // how many generations of the job there were before
  int most = 0;                   // of an elastic job (World::most_size); 0: another
  int threads = 0;  // cores for each rank, where ranks are threads of one process; 0: they are not
};

// All ranks of a run call it. Only rank 0 has observers, and a folder.
//
// Resolves the settings (train/run/resolve.h), trains, and stores the resolved settings with the
// run. Throws Error where the run cannot begin, before anything in an earlier run's folder has
// changed; and where it cannot continue (a loss that is NaN or infinite, of training or validation:
// Error(kNonFinite)), with the last good checkpoint in place. Every observer gets the end in either
// case; except where ranks were lost and this one has kept its states (train/run/survival.h), or
// where all regroup: then the run continues with the next call.
RunOutcome run_training(const RunSettings& settings,
                        std::span<const std::unique_ptr<RunObserver>> observers,
                        const StopSignal& stop, const RunRanks& ranks = {});

}  // namespace lockstep::train
