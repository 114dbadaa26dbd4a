// Turns the settings that a user gives into those that a run uses.
//
//   RunSettings    as file, environment and command line give them: a 0, an "auto" or an empty
//       |          text means "decide for me"
//   plan_job()     decides what follows from settings alone, from the ranks of the job, and from
//       |          run.init_from. It reads no data and makes nothing, so that a launcher can refuse
//       v          a run before it starts ranks; servers need no more than this
//   RunSettings
//       |
//   resolve()      decides what the data and the machine say
//       v
//   ResolvedRun    never changes: the trainer, the loop, checkpoints and the report read it
//
// Every open setting is decided in one place, by a function that takes options and returns options:
//
//   setting                                 depends on               decided by
//   workers and nodes (no keys)             the ranks of the job     plan_job()
//   train.threads of ranks that are threads the ranks of the job     plan_job()
//   train.global_batch_size, micro_batch_size   each other, workers  completed()
//   schedule.warmup_steps, decay_steps      train.steps              completed(), with_steps()
//   model.*                                 run.init_from            model_of_start()
//   model.vocabulary, model.features        data                     with_data()
//   train.steps                             train.epochs and data    with_steps()
//   run.device, train.threads               machine                  make_ops()
//   parallel.zero, train.micro_batch_size,  free memory, by          decide_by_memory()
//   train.recompute, offload.*              memory.auto
//   offload.folder                          run.dir                  resolve()
#pragma once

#include <string>

#include "lockstep/ops/ops.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// The job that a run is part of.
struct JobShape {
  int workers = 1;  // dedicated servers are ranks besides; tensor x pipeline ranks are one
  int nodes = 1;    // that they are on
  int threads = 0;  // cores for each rank, where ranks are threads of one process; 0: they are not
  int rank = 0;     // of this process or thread
  int most_workers = 0;  // BatchChoice::most_workers
  parallel::NodePlace node_place = {};
};

// Throws Error(kInvalidArgument) for settings that do not go together, or with the job.
RunSettings plan_job(const RunSettings& given, const JobShape& job);

class ResolvedRun {
 public:
  // All settings with the values in force.
  const RunOptions& options() const { return settings_.options; }
  // The same as keys: what config.toml and the report have, with where each value came from.
  const Config& config() const { return settings_.config; }
  // Settings of training as this rank's trainer takes them: options().train, and what is a rank's
  // own and therefore not written down (train.threads, offload.folder).
  const TrainOptions& train() const { return train_; }
  // What memory.auto or train.recompute = "auto" chose, for people; empty: nothing. Worker 0's.
  const std::string& memory_choice() const { return memory_choice_; }

 private:
  friend ResolvedRun resolve(const RunSettings&, const Dataset&, const Ops&, RunGroup);
  ResolvedRun(const RunSettings& settings, TrainOptions train, std::string memory_choice)
      : settings_(settings), train_(std::move(train)), memory_choice_(std::move(memory_choice)) {}

  RunSettings settings_;
  TrainOptions train_;
  std::string memory_choice_;
};

// All workers of the run call it, each with its data, and with the operations of its device
// (make_ops() of the plan); they decide alike. Throws Error where the run cannot be, or does not
// fit into memory.
ResolvedRun resolve(const RunSettings& planned, const Dataset& data, const Ops& ops,
                    RunGroup workers);

}  // namespace lockstep::train
