// Settings that do not go together.
#include <fmt/format.h>

#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {
namespace {

// What does not divide a model by tensor groups yet. (Models that cannot be divided are refused
// when they are made.)
void check_tensor_groups(const TrainOptions& options) {
  const int tensor = options.parallel.tensor;
  if (tensor == 1) return;
  if (options.offload.tiers.any()) {
    fail(ErrorCode::kUnsupported,
         "offload.* is not supported with parallel.tensor = {}; leave one of them out", tensor);
  }
  if (family_of(options) == ModelFamily::kLinear) {
    fail(
        ErrorCode::kUnsupported,
        "model.family = \"linear\" has nothing that parallel.tensor = {} ranks could divide; leave "
        "parallel.tensor out",
        tensor);
  }
}

// What does not work with pipelines yet, and steps whose workers have unequal shares: all stages of
// all workers follow one schedule.
void check_pipelines(const TrainOptions& options) {
  const int stages = options.parallel.pipeline;
  if (stages == 1) return;
  const auto refuse = [&](std::string_view setting) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with parallel.pipeline = {}; leave one of them out", setting, stages);
  };
  if (options.offload.tiers.any()) refuse("offload.*");
  if (options.memory_auto) refuse("memory.auto = true");
  if (options.recompute == RecomputeChoice::kAuto) refuse("train.recompute = \"auto\"");
  if (family_of(options) == ModelFamily::kLinear) refuse("model.family = \"linear\"");
  const BatchChoice batch = solved(options.batch);
  const int all = batch.sequences / batch.micro;
  if (all % batch.workers == 0) return;
  const int below = all / batch.workers * batch.workers * batch.micro;
  fail(ErrorCode::kInvalidArgument,
       "a step of {} micro-batches gives {} workers unequal shares, which parallel.pipeline = {} "
       "does not support; take train.global_batch_size = {} or {}",
       all, batch.workers, stages, below, below + batch.workers * batch.micro);
}

}  // namespace

void check(const TrainOptions& options) {
  parallel::check(options.parallel, options.batch.workers);
  parallel::check(options.offload, options.parallel, worker_position_of(options));
  check_tensor_groups(options);
  check_pipelines(options);
  if (options.precision == plan::Precision::kF16 &&
      options.loss_scale.initial < options.loss_scale.min) {
    fail(ErrorCode::kInvalidArgument,
         "loss_scale.initial = {:g} is below loss_scale.min = {:g}; raise the first or lower the "
         "second",
         options.loss_scale.initial, options.loss_scale.min);
  }
  if (options.slow_rank >= options.batch.workers) {
    fail(ErrorCode::kInvalidArgument,
         "debug.slow_rank = {}, but the workers of this run are ranks 0 to {}", options.slow_rank,
         options.batch.workers - 1);
  }
}

}  // namespace lockstep::train
