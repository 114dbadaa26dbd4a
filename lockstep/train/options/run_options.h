// All settings of `lockstep train`: of the training itself (train/options/options.h), of the data,
// of what is saved and shown. describe() of the bound Config is its manual.
#pragma once

#include <string>

#include "lockstep/base/config/config.h"
#include "lockstep/comm/options.h"
#include "lockstep/data/options.h"
#include "lockstep/train/options/checkpoint_options.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

struct SampleOptions {
  int every = 0;  // steps; 0: none
  int tokens = 200;
  double temperature = 0.8;
  std::string prompt;  // empty: the end-of-text token, or a line break
};

struct RunOptions {
  TrainOptions train;
  data::DataOptions data;
  CheckpointOptions checkpoint;
  SampleOptions sample;
  CommOptions comm;
  std::string dir = "run";
  std::string init_from;  // parameters to begin with: a run, a checkpoint, a Hugging Face folder
  bool resume = true;
  int steps = 1000;
  double epochs = 0;        // over 0: instead of steps
  double warmup_ratio = 0;  // of steps, where schedule.warmup_steps is 0
  int validate_every = 250;
  int validate_batches = 0;  // as large as a step; 0: all
  int log_every = 10;
  bool trace = false;
  int trace_steps = 20;
};

// Declares all keys, and the names that other trainers have for them; `options` must outlive
// `config` and stay in place.
void bind(Config& config, RunOptions& options);

// What is left open by the settings and follows from others: the step at which a declining learning
// rate reaches its floor, the warm-up by its share of the run. Where the run is as long as so many
// epochs, that is for settle_steps(). Throws Error(kInvalidArgument) for what cannot be.
void complete(RunOptions& options);

// Of settings that were completed, as a run's folder has them: the step at which the learning rate
// reaches its floor is open again where it followed from the length of the run, so that a run that
// is made longer declines for longer.
void reopen_schedule(RunOptions& options);

// Of a run of epochs, once it is known how many sequences there are in one.
void settle_steps(RunOptions& options, std::uint64_t sequences);

}  // namespace lockstep::train
