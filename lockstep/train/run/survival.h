// How a worker outlives the loss of others: what it keeps from one generation of its job
// (launch/launcher.h) to the next.
//
// When ranks are lost, run_training() throws on all others. In DDP on CPUs each of them has the
// states of a whole run: those after the last step that it has committed
// (Strategy::commit_step). It keeps a copy of them in host memory, unwinds, and meets the
// replacements in the next generation. There all workers take the states of the worker that has
// come furthest:
//
//   worker 0   | step 41 | step 42, update, lost  | keeps 42 |
//   worker 1   | step 41 | step 42, lost          | keeps 41 | gets 42 | step 43
//   worker 2   | step 41 | killed                            | gets 42 | step 43
//
// So at most one step is computed again. Random numbers and the order of data are functions of seed
// and step, and are not kept. The metrics of the last step are, because a leader that was killed
// may not have written them.
//
// With ZeRO, and with parameter servers, a worker keeps shards, its own and a mirrored one
// (survive.mirror, train/run/kept_shards.h). Nothing is kept of other states that are not those of
// the whole run (tensor groups, pipelines), of states in files, of scales of FP8, or with error
// feedback, whose residuals are each worker's own. The next generation then continues from the
// newest checkpoint.
//
// The next generation may have another number of workers. Where they stop for that, all of them
// have done the same step; a run whose workers keep nothing saves a checkpoint first, and continues
// with the same workers where that fails.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/observe/observer.h"
#include "lockstep/train/run/kept_shards.h"
#include "lockstep/train/trainer/run_group.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

// The states of a replica, in host memory.
struct KeptStates {
  TrainState state;
  std::vector<std::byte> bytes;        // the master copy and the optimizer's states, block by block
  std::optional<StepMetrics> metrics;  // of the step that made them
};

// Of a process, through all generations.
struct Survival {
  // Set by another thread to the number of the last request of this generation: all ranks are to
  // stop after a step and begin in another number.
  std::atomic<int> regroups = 0;
  // Called by the leader where all ranks continue as they are instead, with the number of that
  // request: they keep nothing in memory, and their states could not be saved.
  std::function<void(int request)> stays;
  // The numbering of ranks that kept shards belong to: it is new where ranks may have been numbered
  // anew.
  int numbering = 0;
  // Whether the last run was one whose workers keep states: decided by run_training(), when the
  // workers have met.
  bool keeps = false;
  bool is_decided = false;
  std::optional<KeptStates> kept;
  std::optional<KeptShards> shards;

  void forget() {
    kept.reset();
    shards.reset();
  }
};

// Whether workers of that run keep all states.
bool keeps_states(const nn::Replica& replica, const parallel::Strategy& strategy,
                  const parallel::ParallelOptions& options);

// Copies the states. Nothing where their step is not known, or none was made.
std::optional<KeptStates> keep_states(Trainer& trainer);
// Sets the states of a replica of the same run.
void put_states(const KeptStates& kept, nn::Replica& replica);

// The states that a generation continues from.
struct Source {
  int worker = 0;
  TrainState state;
  std::optional<StepRecord> record;  // of its last step, for the leader
  std::string what;                  // for people: "the states of rank 0"
};
// The worker that has come furthest, the first of several; nothing where none has kept states.
// Called by all workers.
std::optional<Source> furthest_worker(const std::optional<KeptStates>& mine, RunGroup group);

}  // namespace lockstep::train
