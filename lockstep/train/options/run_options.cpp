#include "lockstep/train/options/run_options.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/net/link_emulation.h"
#include "lockstep/comm/native/selection.h"
#include "lockstep/train/options/familiar_names.h"

namespace lockstep::train {

void bind(Config& config, RunOptions& options) {
  config.bind("run.dir", options.dir,
              "The folder of the run: its checkpoints, metrics and report. An interrupted run in "
              "it is resumed.");
  config.bind("run.name", options.name,
              "A name for people: in the lines of the run, its report and lockstep runs.");
  config.bind(
      "run.resume", options.resume,
      "Whether to continue from the newest checkpoint in run.dir; false: a run.dir that has "
      "one is refused.");
  config
      .bind("run.init_from", options.init_from,
            "Parameters to start with: a run's folder, a checkpoint, or a folder of Hugging Face "
            "transformers.")
      .formerly("run.from");
  data::bind(config, options.data);
  bind(config, options.train);
  config.bind("train.steps", options.steps, "Steps of the whole run.", {.min = 1});
  config.bind("train.epochs", options.epochs,
              "Passes over the training data, instead of train.steps; 0: use train.steps.",
              {.min = 0, .max = 1e9});
  config.bind("schedule.warmup_ratio", options.warmup_ratio,
              "The warm-up as a fraction of the run, where schedule.warmup_steps is 0.",
              {.min = 0, .max = 1});
  config.bind("train.validate_every", options.validate_every,
              "Steps between validations; 0: only at the end.", {.min = 0});
  config.bind("train.validate_batches", options.validate_batches,
              "Batches of a validation, each as large as that of a step; 0: all that is held back; "
              "-1: as many as cost 5 % of the steps between two validations.",
              {.min = kOpenBatches});
  config.bind("train.early_stopping", options.early_stopping,
              "Ends the run after that many validations in a row whose loss is not below the "
              "lowest one before; 0: never.",
              {.min = 0});
  config.bind("train.early_stopping_delta", options.early_stopping_delta,
              "By how much a validation loss must be lower for train.early_stopping to count it as "
              "an improvement.",
              {.min = 0});
  config.bind("train.log_every", options.log_every,
              "Steps between progress lines where the output is not a terminal.", {.min = 1});
  config.bind("train.trace", options.trace,
              "Whether to record what every rank computes, sends and waits for: trace.json in "
              "run.dir, for Perfetto, and a timeline in the report.");
  config.bind("train.trace_steps", options.trace_steps,
              "How many of the last steps the trace holds.", {.min = 1});
  config.bind("sample.every", options.sample.every,
              "Steps between samples of generated text; 0: none.", {.min = 0});
  config.bind("sample.tokens", options.sample.tokens, "Tokens of a sample.", {.min = 1});
  config.bind("sample.temperature", options.sample.temperature,
              "The sampling temperature; 0: always the most probable token.",
              {.min = 0, .max = 100});
  config.bind("sample.prompt", options.sample.prompt, "The prompt of a sample.");
  bind(config, options.checkpoint);
  bind(config, options.live);
  lockstep::bind(config, options.comm);
  accept_familiar_names(config);
}

namespace {

// Where a decaying learning rate reaches its minimum by default: at the end of the run, which may
// be too short for its warm-up.
int end_of_decay(const RunOptions& options) {
  constexpr int kLatest = std::numeric_limits<int>::max();
  return std::max(options.steps, std::min(options.train.schedule.warmup_steps, kLatest - 1) + 1);
}

void complete_schedule(RunOptions& options) {
  optim::ScheduleOptions& schedule = options.train.schedule;
  if (schedule.warmup_steps == 0) {
    schedule.warmup_steps = static_cast<int>(std::ceil(options.warmup_ratio * options.steps));
  }
  if (schedule.decay != optim::LearningRateDecay::kConstant && schedule.decay_steps == 0) {
    schedule.decay_steps = end_of_decay(options);
  }
  optim::check(schedule);
}

// Throws Error(kInvalidArgument) for data that a model of numbers, or of pairs, cannot learn from:
// before time goes into tokens.
void check_data(const RunOptions& options) {
  const ModelFamily family = family_of(options.train);
  const data::DataOptions& data = options.data;
  const bool of_numbers = family == ModelFamily::kLinear;
  if (!of_numbers && !translates(options.train)) return;
  const struct {
    std::string_view key;
    std::string value;
  } others[] = {{"data.text", data.text},
                {"data.tokens", data.tokens},
                {"data.mixture", data.mixture.empty() ? "" : data.mixture.front()},
                {of_numbers ? "data.pairs" : "data.table", of_numbers ? data.pairs : data.table}};
  for (const auto& other : others) {
    if (other.value.empty()) continue;
    fail(ErrorCode::kInvalidArgument,
         "model.family = \"{}\" trains on {}, but {} = {} has none. Give {} instead", name(family),
         of_numbers ? "numbers" : "translations", other.key, other.value,
         of_numbers ? "data.table, a CSV file," : "data.pairs");
  }
}

// Workers that do not wait for each other have no common parameters to judge.
void check_follows_validation(const RunOptions& options) {
  if (options.checkpoint.keep_best > 0 && options.train.offload.tiers.delayed_update) {
    fail(ErrorCode::kUnsupported,
         "checkpoint.keep_best = {} keeps checkpoints by the validation losses of their "
         "parameters; with offload.delayed_update a validation is of the parameters of the step "
         "before. Leave one of them out",
         options.checkpoint.keep_best);
  }
  const parallel::ParallelOptions& parallel = options.train.parallel;
  const bool lockstep = parallel.strategy != parallel::StrategyKind::kParameterServer ||
                        parallel.server.consistency == parallel::Consistency::kBsp;
  if (lockstep || (options.checkpoint.keep_best == 0 && options.early_stopping == 0)) return;
  fail(ErrorCode::kUnsupported,
       "{} needs workers that wait for each other, so that a validation is of the parameters that "
       "a checkpoint holds; with parallel.strategy = \"parameter_server\" set parallel.consistency "
       "= \"bsp\", or leave it out",
       options.early_stopping > 0 ? "train.early_stopping" : "checkpoint.keep_best");
}

}  // namespace

RunOptions with_open_schedule(RunOptions options) {
  int& steps = options.train.schedule.decay_steps;
  if (steps == end_of_decay(options)) steps = 0;
  return options;
}

RunOptions with_steps(RunOptions options, std::uint64_t sequences) {
  if (options.epochs == 0) return options;
  const double steps = std::ceil(options.epochs * static_cast<double>(sequences) /
                                 solved(options.train.batch).sequences);
  if (steps > std::numeric_limits<int>::max()) {
    fail(ErrorCode::kInvalidArgument,
         "train.epochs = {} of {} sequences each is {:.0f} steps; a run has at most {}. Lower "
         "train.epochs, or raise train.global_batch_size",
         options.epochs, sequences, steps, std::numeric_limits<int>::max());
  }
  options.steps = std::max(static_cast<int>(steps), 1);
  complete_schedule(options);
  return options;
}

RunOptions completed(RunOptions options) {
  if (options.epochs == 0) complete_schedule(options);
  const TrainOptions& train = options.train;
  options.train.parallel.comm = options.comm;
  if (options.comm.emulated_nodes > 1 && train.batch.workers > 1) {
    options.train.parallel.machines = options.comm.emulated_nodes;
  }
  check(train);
  check_data(options);
  check_follows_validation(options);
  check_algorithms(options.comm);
  options.comm.grid_extents();
  if (options.comm.emulated_nodes > 1 &&
      train.parallel.strategy == parallel::StrategyKind::kParameterServer) {
    fail(ErrorCode::kInvalidArgument,
         "comm.emulated_nodes = {} emulates nodes for collectives only, and parallel.strategy = "
         "\"parameter_server\" uses none. Leave one of them out",
         options.comm.emulated_nodes);
  }
  if (!options.comm.emulate.empty()) parse_link_emulation(options.comm.emulate);
  // A step keeps its sequences; what a worker does of it follows from the number of workers.
  BatchChoice& batch = options.train.batch;
  const BatchChoice all = solved(batch);
  batch.sequences = all.sequences;
  if (batch.accumulation > 0) batch.micro = all.micro;
  batch.accumulation = 0;
  return options;
}

}  // namespace lockstep::train
