#include "lockstep/train/run_plan.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/units.h"
#include "lockstep/parallel/footprint.h"
#include "lockstep/parallel/offload/options.h"
#include "lockstep/train/memory_choice.h"

namespace lockstep::train {
namespace {

std::string exactly(std::size_t bytes) {
  return fmt::format("{} ({} bytes)", format_bytes(static_cast<double>(bytes)),
                     format_count(bytes));
}

std::vector<GradientChoice> gradient_choices(const TrainOptions& options) {
  std::vector<GradientChoice> choices{options.gradients};
  if (options.gradients != GradientChoice::kCompute && options.precision != plan::Precision::kF32) {
    choices.push_back(GradientChoice::kCompute);
  }
  return choices;
}

std::vector<int> zero_stages(const TrainOptions& options) {
  std::vector<int> stages{options.parallel.zero};
  if (options.batch.workers < 2) return stages;
  TrainOptions higher = options;
  for (int zero = options.parallel.zero + 1; zero < plan::kZeroStages; ++zero) {
    higher.parallel.zero = zero;
    if (goes_together(higher)) stages.push_back(zero);
  }
  return stages;
}

std::vector<RecomputeChoice> recompute_choices(const TrainOptions& options) {
  using enum RecomputeChoice;
  std::vector<RecomputeChoice> choices;
  for (const RecomputeChoice choice : {kNone, kSelective, kFull}) {
    if (choice >= options.recompute) choices.push_back(choice);
  }
  if (options.recompute == kAuto) choices.push_back(kAuto);
  return choices;
}

TrainOptions with(TrainOptions options, const SmallerRun& change) {
  options.offload.tiers = change.tiers;
  options.parallel.zero = change.zero;
  options.recompute = change.recompute;
  options.recompute_of_blocks.clear();
  options.batch = change.batch;
  options.gradients = change.gradients;
  return options;
}

void add_tiers(const nn::Tiers& present, const nn::Tiers& chosen,
               std::vector<std::string>& changes) {
  const auto add = [&](const char* key, Tier before, Tier after) {
    if (before != after) changes.push_back(fmt::format("{} = \"{}\"", key, name(after)));
  };
  add("offload.optimizer", present.optimizer, chosen.optimizer);
  add("offload.gradients", present.gradients, chosen.gradients);
  add("offload.parameters", present.parameters, chosen.parameters);
  add("offload.activations", present.activations, chosen.activations);
}

std::string settings(const TrainOptions& options, const SmallerRun& run) {
  std::vector<std::string> changes;
  add_tiers(options.offload.tiers, run.tiers, changes);
  if (run.zero != options.parallel.zero) {
    changes.push_back(fmt::format("parallel.zero = {}", run.zero));
  }
  if (run.recompute != options.recompute) {
    changes.push_back(fmt::format("train.recompute = \"{}\"", name(run.recompute)));
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

// Where blocks are chosen that do something again, as the limits of `options` and this one ask for.
void plan_into(SmallerRun& run, const TrainOptions& options, const Ops& ops, std::size_t limit,
               int worker) {
  TrainOptions changed = with(options, run);
  settle_recompute(changed, ops, limit);
  const nn::MemoryPlan plan = plan_run(changed, ops, worker);
  run.bytes = plan.bytes();
  run.device_bytes = plan.bytes(Tier::kDevice);
}

bool is_within(std::size_t bytes, std::size_t limit) { return limit == 0 || bytes <= limit; }

bool fits(const SmallerRun& run, std::size_t limit, std::size_t device_limit) {
  return is_within(run.bytes, limit) && is_within(run.device_bytes, device_limit);
}

// All shared out that can be, everything recomputed, one sequence at a time.
SmallerRun smallest_run(const TrainOptions& options, const Ops& ops, int worker) {
  SmallerRun run{.zero = zero_stages(options).back(),
                 .recompute = recompute_choices(options).back(),
                 .batch = micro_batches(options.batch).back(),
                 .gradients = gradient_choices(options).back(),
                 .tiers = tier_choices(options).back()};
  plan_into(run, options, ops, 1, worker);
  return run;
}

// Of twice as many workers, four times, ... the first that fit, if any do; "" else.
std::string with_more_workers(const TrainOptions& options, const Ops& ops) {
  const BatchChoice present = solved(options.batch);
  TrainOptions more = options;
  for (int workers = 2 * present.workers; workers <= present.sequences; workers *= 2) {
    more.batch = {.sequence = present.sequence,
                  .sequences = present.sequences,
                  .micro = 1,
                  .workers = workers};
    const SmallerRun least = smallest_run(more, ops, 0);
    if (!fits(least, options.memory_limit, options.device_limit)) continue;
    const std::string how = settings(options, least);
    // Servers of their own come on top: `lockstep train --ranks` counts workers, too.
    const int servers =
        parallel::has_own_servers(options.parallel) ? options.parallel.server.servers : 0;
    return fmt::format(
        "; with {} workers{}{}{} each takes {}", workers,
        servers > 0 ? fmt::format(" ({} ranks, with servers)", workers + servers) : "",
        how.empty() ? "" : " and ", how, exactly(least.bytes));
  }
  return "";
}

std::string classes_of(std::span<const GroupBytes> classes) {
  std::size_t activations = 0;
  std::vector<std::string> parts;
  for (const GroupBytes& group : classes) {
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

bool goes_together(const TrainOptions& options) {
  try {
    check(options);
  } catch (const Error&) {
    return false;
  }
  return true;
}

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

std::vector<nn::Tiers> tier_choices(const TrainOptions& options) {
  std::vector<nn::Tiers> choices{options.offload.tiers};
  const bool may_move =
      options.device_limit > 0 && options.parallel.strategy == parallel::StrategyKind::kDdp;
  if (!may_move) return choices;
  for (Tier nn::Tiers::*const each : {&nn::Tiers::optimizer, &nn::Tiers::gradients,
                                      &nn::Tiers::parameters, &nn::Tiers::activations}) {
    nn::Tiers more = choices.back();
    if (more.*each != Tier::kDevice) continue;
    more.*each = Tier::kHost;
    choices.push_back(more);
  }
  return choices;
}

nn::MemoryPlan plan_run(const TrainOptions& options, const Ops& ops, int worker) {
  const parallel::Crew crew = crew_of(options, worker);
  nn::MemoryPlan plan =
      nn::plan_memory(model_of(options), setup_of(options), ops, optimizer_state_of(options),
                      parallel::sharding_of(options.parallel, crew), options.offload.tiers);
  parallel::add_memory(options.parallel, options.optimizer, crew, plan);
  return plan;
}

std::optional<SmallerRun> nearest_fit(const TrainOptions& options, const Ops& ops,
                                      std::size_t limit, int worker) {
  for (const GradientChoice gradients : gradient_choices(options)) {
    for (const BatchChoice& batch : micro_batches(options.batch)) {
      for (const RecomputeChoice recompute : recompute_choices(options)) {
        for (const int zero : zero_stages(options)) {
          for (const nn::Tiers& tiers : tier_choices(options)) {
            SmallerRun run{.zero = zero,
                           .recompute = recompute,
                           .batch = batch,
                           .gradients = gradients,
                           .tiers = tiers};
            if (!goes_together(with(options, run))) continue;
            plan_into(run, options, ops, limit, worker);
            if (fits(run, limit, options.device_limit)) return run;
          }
        }
      }
    }
  }
  return std::nullopt;
}

void check_limit(const TrainOptions& options, const nn::MemoryPlan& plan, const Ops& ops,
                 int worker) {
  const std::size_t limit = options.memory_limit;
  const bool fits = is_within(plan.bytes(), limit);
  const std::size_t on_device = plan.bytes(Tier::kDevice);
  if (fits && is_within(on_device, options.device_limit)) return;
  const auto takes = [&](const SmallerRun& run) {
    return options.device_limit == 0 ? exactly(run.bytes)
                                     : fmt::format("{}, {} of them on the device",
                                                   exactly(run.bytes), exactly(run.device_bytes));
  };
  std::string advice;
  if (const auto fit = nearest_fit(options, ops, limit, worker)) {
    advice = fmt::format("the nearest setting that fits is {}, which takes {}",
                         settings(options, *fit), takes(*fit));
  } else {
    const SmallerRun least = smallest_run(options, ops, worker);
    const std::string how = settings(options, least);
    advice = fmt::format("no setting of one worker fits; the least it can do with is {}{}{}{}",
                         takes(least), how.empty() ? "" : ", with ", how,
                         with_more_workers(options, ops));
  }
  const std::string over =
      fits ? fmt::format("{} on the device, over memory.device_limit = {}", exactly(on_device),
                         exactly(options.device_limit))
           : fmt::format("{}, over memory.limit = {}", exactly(plan.bytes()), exactly(limit));
  fail(ErrorCode::kInvalidArgument, "this run takes {}: {}; {}", over,
       classes_of(fits ? plan.by_class(Tier::kDevice) : plan.by_class()), advice);
}

}  // namespace lockstep::train
