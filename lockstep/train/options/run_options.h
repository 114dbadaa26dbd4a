// All settings of `lockstep train`: of the training itself (train/options/options.h), of the data,
// of saving and of output. describe() of the bound Config documents them.
#pragma once

#include <string>

#include "lockstep/base/config/config.h"
#include "lockstep/comm/options.h"
#include "lockstep/data/options.h"
#include "lockstep/train/options/checkpoint_options.h"
#include "lockstep/train/options/live_options.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

struct SampleOptions {
  int every = 0;  // steps; 0: none
  int tokens = 200;
  double temperature = 0.8;
  std::string prompt;  // empty: the end-of-text token, or a line break
};

// Of train.validate_batches: as many as cost little beside the steps between two validations
// (train/run/validation.h), and all there are.
inline constexpr int kOpenBatches = -1;
inline constexpr int kAllBatches = 0;

struct RunOptions {
  TrainOptions train;
  data::DataOptions data;
  CheckpointOptions checkpoint;
  SampleOptions sample;
  LiveOptions live;
  CommOptions comm;
  std::string dir = "run";
  std::string name;       // for people
  std::string init_from;  // parameters to begin with: a run, a checkpoint, a Hugging Face folder
  bool resume = true;
  int steps = 1000;
  double epochs = 0;        // over 0: instead of steps
  double warmup_ratio = 0;  // of steps, where schedule.warmup_steps is 0
  int validate_every = 250;
  int validate_batches = kOpenBatches;  // of a validation, as large as a step
  int early_stopping = 0;  // validations in a row without a lower loss that end the run; 0: never
  double early_stopping_delta = 0;  // by how much a loss has to be lower
  int log_every = 10;
  bool trace = false;
  int trace_steps = 20;
};

// Declares all keys, and the names that other trainers have for them; `options` must outlive
// `config` and stay in place.
void bind(Config& config, RunOptions& options);

// Options together with the keys that they are bound to: a value that can be copied, and that says
// where each setting came from.
struct RunSettings {
  RunOptions options;
  Config config;  // bound to `options`

  RunSettings() { bind(config, options); }
  RunSettings(const RunSettings& other) : RunSettings() { *this = other; }
  RunSettings& operator=(const RunSettings& other) {
    options = other.options;
    config.copy_origins(other.config);
    return *this;
  }
};

// The functions below return the options with some open settings filled in. See train/run/resolve.h
// for which setting is decided where.

// What follows from other settings: the warm-up from its share of the run, the step at which a
// decaying learning rate reaches its minimum (both of a run of epochs: with_steps()), what a worker
// does of a step. Throws Error(kInvalidArgument) for settings that contradict each other.
RunOptions completed(RunOptions options);

// A run of train.epochs, where an epoch has `sequences`: as many train.steps.
RunOptions with_steps(RunOptions options, std::uint64_t sequences);

// The opposite of completed(), for the settings of a run's folder: schedule.decay_steps is open
// again if it followed from the length of the run, so that a longer run decays for longer.
RunOptions with_open_schedule(RunOptions options);

}  // namespace lockstep::train
