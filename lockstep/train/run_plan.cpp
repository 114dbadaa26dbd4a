#include "lockstep/train/run_plan.h"

#include <fmt/format.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/units.h"
#include "lockstep/parallel/footprint.h"

namespace lockstep::train {
namespace {

std::string exactly(std::size_t bytes) {
  return fmt::format("{} ({} bytes)", format_bytes(static_cast<double>(bytes)),
                     format_count(bytes));
}

// The micro-batches to try, the present one first: those that divide the sequences of a step.
std::vector<BatchChoice> micro_batches(const BatchChoice& batch) {
  const BatchChoice present = solved(batch);
  std::vector<BatchChoice> choices;
  for (int micro = present.micro; micro > 0; --micro) {
    if (present.sequences % micro != 0) continue;
    BatchChoice choice = present;
    choice.micro = micro;
    choice.accumulation = 0;
    choices.push_back(solved(choice));
  }
  return choices;
}

std::vector<GradientChoice> gradient_choices(const TrainOptions& options) {
  std::vector<GradientChoice> choices{options.gradients};
  if (options.gradients != GradientChoice::kCompute && options.precision != plan::Precision::kF32) {
    choices.push_back(GradientChoice::kCompute);
  }
  return choices;
}

std::vector<int> zero_stages(const TrainOptions& options) {
  const parallel::ParallelOptions& spread = options.parallel;
  std::vector<int> stages{spread.zero};
  const bool may_share = options.batch.workers > 1 &&
                         spread.strategy == parallel::StrategyKind::kDdp &&
                         spread.compression.compression == parallel::Compression::kNone;
  for (int zero = spread.zero + 1; may_share && zero < plan::kZeroStages; ++zero) {
    stages.push_back(zero);
  }
  return stages;
}

TrainOptions with(TrainOptions options, const SmallerRun& change) {
  options.parallel.zero = change.zero;
  options.recompute = change.recompute;
  options.batch = change.batch;
  options.gradients = change.gradients;
  return options;
}

std::string settings(const TrainOptions& options, const SmallerRun& run) {
  std::vector<std::string> changes;
  if (run.zero != options.parallel.zero) {
    changes.push_back(fmt::format("parallel.zero = {}", run.zero));
  }
  if (run.recompute != options.recompute) {
    changes.push_back(fmt::format("train.recompute = \"{}\"", plan::name(run.recompute)));
  }
  if (run.batch.micro != solved(options.batch).micro) {
    changes.push_back(fmt::format("train.micro_batch = {} and train.accumulation = {}",
                                  run.batch.micro, run.batch.accumulation));
  }
  if (run.gradients != options.gradients) {
    changes.push_back(fmt::format("train.gradients = \"{}\"", name(run.gradients)));
  }
  return fmt::format("{}", fmt::join(changes, ", "));
}

// All shared out that can be, everything recomputed, one sequence at a time.
SmallerRun smallest_run(const TrainOptions& options, const Ops& ops, int worker) {
  SmallerRun run{.zero = zero_stages(options).back(),
                 .recompute = plan::Recompute::kFull,
                 .batch = micro_batches(options.batch).back(),
                 .gradients = gradient_choices(options).back()};
  run.bytes = plan_run(with(options, run), ops, worker).bytes();
  return run;
}

std::string classes_of(const nn::MemoryPlan& plan) {
  std::size_t activations = 0;
  std::vector<std::string> parts;
  for (const GroupBytes& group : plan.by_class()) {
    if (group.group.starts_with("activations")) {
      activations += group.bytes;
    } else if (group.group == "parameters" || group.group == "gradients" ||
               group.group == "optimizer") {
      parts.push_back(
          fmt::format("{} {}", group.group, format_bytes(static_cast<double>(group.bytes))));
    }
  }
  parts.push_back(fmt::format("activations {}", format_bytes(static_cast<double>(activations))));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

nn::MemoryPlan plan_run(const TrainOptions& options, const Ops& ops, int worker) {
  const BatchChoice batch = solved(options.batch);
  const parallel::Crew crew{
      .workers = batch.workers, .worker = worker, .most_micro_batches = batch.accumulation};
  nn::MemoryPlan plan =
      nn::plan_memory(model_of(options), setup_of(options), ops, optimizer_state_of(options),
                      parallel::sharding_of(options.parallel, crew));
  plan.outside = parallel::memory_of(options.parallel, options.optimizer, crew, plan);
  return plan;
}

std::optional<SmallerRun> nearest_fit(const TrainOptions& options, const Ops& ops,
                                      std::size_t limit, int worker) {
  for (const GradientChoice gradients : gradient_choices(options)) {
    for (const BatchChoice& batch : micro_batches(options.batch)) {
      for (const plan::Recompute recompute : plan::kAllRecompute) {
        if (recompute < options.recompute) continue;
        for (const int zero : zero_stages(options)) {
          SmallerRun run{
              .zero = zero, .recompute = recompute, .batch = batch, .gradients = gradients};
          run.bytes = plan_run(with(options, run), ops, worker).bytes();
          if (run.bytes <= limit) return run;
        }
      }
    }
  }
  return std::nullopt;
}

void check_limit(const TrainOptions& options, const nn::MemoryPlan& plan, const Ops& ops,
                 int worker) {
  const std::size_t limit = options.memory_limit;
  if (limit == 0 || plan.bytes() <= limit) return;
  std::string advice;
  if (const auto fit = nearest_fit(options, ops, limit, worker)) {
    advice = fmt::format("the nearest setting that fits is {}, which takes {}",
                         settings(options, *fit), exactly(fit->bytes));
  } else {
    const SmallerRun least = smallest_run(options, ops, worker);
    const std::string how = settings(options, least);
    advice = fmt::format("no setting of one worker fits; the least it can do with is {}{}{}",
                         exactly(least.bytes), how.empty() ? "" : ", with ", how);
  }
  fail(ErrorCode::kInvalidArgument, "this run takes {}, over memory.limit = {}: {}; {}",
       exactly(plan.bytes()), exactly(limit), classes_of(plan), advice);
}

}  // namespace lockstep::train
