#include "lockstep/train/memory/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/available_memory.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/nn/memory/recompute_search.h"
#include "lockstep/parallel/traffic.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::train {
namespace {

nn::MemoryLimits limits_of(const TrainOptions& options, std::size_t budget) {
  return {.all = budget, .device = options.device_limit};
}

nn::PlanOf plans_of(const TrainOptions& options, const Ops& ops) {
  return [tried = options, &ops](const std::vector<plan::Recompute>& modes) mutable {
    tried.recompute = RecomputeChoice::kAuto;
    tried.recompute_of_blocks = modes;
    return plan_run(tried, ops);
  };
}

std::vector<int> stages_to_try(const TrainOptions& options, bool open) {
  const bool may_share = open && options.batch.workers > 1 &&
                         options.parallel.strategy == parallel::StrategyKind::kDdp;
  if (!may_share) return {options.parallel.zero};
  std::vector<int> stages(plan::kZeroStages);
  std::iota(stages.begin(), stages.end(), 0);
  return stages;
}

// Servers are started with as many micro-batches as the settings have.
std::vector<BatchChoice> batches_to_try(const TrainOptions& options, bool open) {
  if (!open || options.parallel.strategy == parallel::StrategyKind::kParameterServer) {
    return {options.batch};
  }
  return micro_batches(options.batch);
}

// Adds ever more parts in a tier to the last one.
void add_moved(std::vector<nn::Tiers>& choices, Tier tier) {
  for (Tier nn::Tiers::*const each : kTierParts) {
    nn::Tiers more = choices.back();
    if (more.*each != Tier::kDevice && tier != Tier::kFile) continue;
    if (std::exchange(more.*each, tier) != tier) choices.push_back(more);
  }
}

// Where parts lie now, and then ever more of them on the host where the device has a limit; or with
// `files` ever more of all these in files.
std::vector<nn::Tiers> tiers_to_try(const TrainOptions& options, bool open, bool files) {
  std::vector<nn::Tiers> choices{options.offload.tiers};
  if (!open || options.parallel.strategy != parallel::StrategyKind::kDdp) return choices;
  if (options.device_limit > 0) add_moved(choices, Tier::kHost);
  if (!files) return choices;
  std::vector<nn::Tiers> filed;
  for (const nn::Tiers& tiers : choices) {
    std::vector<nn::Tiers> more{tiers};
    add_moved(more, Tier::kFile);
    filed.insert(filed.end(), more.begin() + 1, more.end());
  }
  return filed;
}

// What goes to another tier in a step and comes back.
struct Moved {
  double host = 0;  // on the device's side
  double file = 0;
};

Moved bytes_moved(const nn::MemoryPlan& plan, double micro_batches) {
  const nn::Tiers& tiers = plan.tiers;
  const nn::Setup& setup = plan.setup;
  const auto buffer = [&](bool sharded, DType dtype) {
    const std::size_t elements = sharded ? plan.shards.elements() : plan.flat.elements();
    return static_cast<double>(elements * size_of(dtype));
  };
  Moved moved;
  double& kept = tiers.activations == Tier::kFile ? moved.file : moved.host;
  for (const nn::Absence& absence : plan.absences) {
    kept += 2 * micro_batches * static_cast<double>(plan.requests[absence.before].bytes);
  }
  const bool shares = plan.sharding.optimizer;
  if (tiers.parameters != Tier::kDevice) {
    double gathered = 0;
    for (const std::size_t request : plan.gathered) {
      if (request == nn::BlockRequests::kAbsent) continue;
      gathered += micro_batches * static_cast<double>(plan.requests[request].bytes);
    }
    if (tiers.parameters == Tier::kFile) {
      // A worker reads its shard of gathered parameters, and an update writes that shard.
      const int readers = plan.sharding.parameters ? plan.sharding.workers : 1;
      moved.file += gathered / readers + buffer(shares, setup.dtype);
    } else {
      moved.host += gathered;
    }
  }
  const double gradients = buffer(plan.sharding.gradients, setup.gradient);
  if (tiers.gradients == Tier::kHost) moved.host += micro_batches * gradients;
  // Later micro-batches add to what the file has; an update reads it for the norm, and again.
  if (tiers.gradients == Tier::kFile) moved.file += (2 * micro_batches + 1) * gradients;
  if (tiers.optimizer == Tier::kFile) {
    for (const DType dtype : plan.state_file.buffers) {
      if (dtype == DType::kF32) moved.file += 2 * buffer(shares, dtype);
    }
  }
  // The optimizer's flat buffers that are not where it computes.
  const auto is_apart = [&](Tier tier) { return tier != tiers.update() && tier != Tier::kFile; };
  if (is_apart(tiers.gradients)) moved.host += buffer(shares, setup.gradient);
  if (is_apart(tiers.parameters)) moved.host += buffer(shares, setup.dtype);
  return moved;
}

// Everything but the recomputation, which is none where that is open.
std::vector<MemoryChoice> candidates(const TrainOptions& options, const OpenSettings& open,
                                     const Ops& ops, bool files) {
  std::vector<MemoryChoice> all;
  for (const BatchChoice& batch : batches_to_try(options, open.micro_batch)) {
    for (const int zero : stages_to_try(options, open.zero)) {
      const bool open_tiers = open.tiers && ops.device() == Device{};
      for (const nn::Tiers& tiers : tiers_to_try(options, open_tiers, files)) {
        MemoryChoice choice;
        choice.options = options;
        choice.options.batch = batch;
        choice.options.parallel.zero = zero;
        choice.options.offload.tiers = tiers;
        if (open.recompute) {
          choice.options.recompute = RecomputeChoice::kNone;
          choice.options.recompute_of_blocks.clear();
        }
        if (!goes_together(choice.options)) continue;
        choice.cost = step_cost(choice.options, ops);
        all.push_back(std::move(choice));
      }
    }
  }
  const auto seconds = [](const MemoryChoice& choice) { return choice.cost.seconds(); };
  std::ranges::stable_sort(all, [&](const MemoryChoice& a, const MemoryChoice& b) {
    return std::pair(seconds(a), a.options.parallel.zero) <
           std::pair(seconds(b), b.options.parallel.zero);
  });
  return all;
}

// With its recomputation settled.
void plan_choice(MemoryChoice& choice, const Ops& ops, std::size_t budget) {
  settle_recompute(choice.options, ops, budget);
  const nn::MemoryPlan plan = plan_run(choice.options, ops);
  choice.bytes = plan.bytes();
  choice.device_bytes = plan.bytes(Tier::kDevice);
  choice.fits = limits_of(choice.options, budget).allow(plan);
  choice.cost = step_cost(choice.options, ops);
}

}  // namespace

StepRates rates_of(Device device) {
  if (device.kind == DeviceKind::kCpu) return {};
  return {.flops = 5e14, .link = 5e10, .host = 5e10, .file = 5e9, .memory = 4e12};
}

std::size_t memory_budget(const TrainOptions& options, Device device, int workers_here) {
  if (options.memory_limit > 0) return options.memory_limit;
  if (device.kind == DeviceKind::kCuda) {
    return gpu_budget(device) / static_cast<std::size_t>(workers_here);
  }
  return available_memory_bytes() / 10 * 9 / static_cast<std::size_t>(workers_here);
}

void settle_recompute(TrainOptions& options, const Ops& ops, std::size_t budget) {
  if (options.recompute != RecomputeChoice::kAuto || !options.recompute_of_blocks.empty()) return;
  const std::size_t blocks = model_of(options).size();
  const nn::MemoryLimits limits = limits_of(options, budget);
  options.recompute_of_blocks =
      limits.any() ? nn::cheapest_recompute(blocks, plans_of(options, ops), limits).of_blocks
                   : std::vector(blocks, plan::Recompute::kNone);
}

OpenSettings open_settings(const Config& config) {
  const auto any_is_set = [&](std::initializer_list<std::string_view> keys) {
    return std::ranges::any_of(keys, [&](std::string_view key) { return config.is_set(key); });
  };
  return {
      .zero = !config.is_set("parallel.zero"),
      .recompute = !config.is_set("train.recompute"),
      .micro_batch = !any_is_set({"train.micro_batch_size", "train.gradient_accumulation_steps"}),
      .tiers = !any_is_set(
          {"offload.optimizer", "offload.gradients", "offload.parameters", "offload.activations"})};
}

StepCost step_cost(const TrainOptions& options, const Ops& ops) {
  const nn::MemoryPlan plan = plan_run(options, ops, 0, nn::Places::kNone);
  const BatchChoice batch = solved(options.batch);
  const double times = batch.accumulation;
  const parallel::WorkerPosition position{
      .workers = batch.workers, .worker = 0, .most_micro_batches = batch.accumulation};
  const auto traffic = parallel::traffic_of(options.parallel, position, plan);
  const nn::Setup& setup = plan.setup;
  StepCost cost{.rates = rates_of(ops.device())};
  if (options.recompute != RecomputeChoice::kNone) {
    TrainOptions keeps = options;
    keeps.recompute = RecomputeChoice::kNone;
    const std::vector<double> again =
        nn::recompute_costs(plan, plan_run(keeps, ops, 0, nn::Places::kNone));
    cost.recomputed = times * std::accumulate(again.begin(), again.end(), 0.0);
  }
  cost.flops = times * (plan.flops.forward + plan.flops.backward) + cost.recomputed;
  if (traffic) cost.sent = traffic->total().all;
  const Moved moved = bytes_moved(plan, times);
  cost.moved = moved.host;
  cost.filed = moved.file;
  cost.passed_over = times * 2 * static_cast<double>(plan.flat.elements()) *
                     static_cast<double>(size_of(setup.dtype) + size_of(setup.gradient));
  return cost;
}

void check_budget(const TrainOptions& options, const Ops& ops, std::size_t budget) {
  TrainOptions limited = options;
  if (limited.memory_limit == 0) limited.memory_limit = budget;
  check_limit(limited, plan_run(limited, ops), ops);
}

MemoryChoice choose_memory(const TrainOptions& options, const OpenSettings& open, const Ops& ops,
                           std::size_t budget) {
  TrainOptions present = options;
  present.recompute_of_blocks.clear();
  OpenSettings searched = open;
  searched.gradients = false;
  searched.micro_batch = batches_to_try(options, open.micro_batch).size() > 1;
  if (open.recompute) present.recompute = RecomputeChoice::kAuto;
  const auto planned = [&](const SmallerRun& run) {
    MemoryChoice choice;
    choice.options = with(present, run);
    plan_choice(choice, ops, budget);
    return choice;
  };
  const SmallerRun nearest = nearest_run(present, ops, budget, 0, searched);
  if (!nearest.fits) return planned(nearest);
  // These come last there, as here.
  const bool files = has_more_files(options.offload.tiers, nearest.tiers);
  std::optional<MemoryChoice> best;
  bool is_first = !files;
  for (MemoryChoice& choice : candidates(options, open, ops, files)) {
    // Recomputation only adds to what it costs.
    if (best && choice.cost.seconds() >= best->cost.seconds()) break;
    const bool was_first = std::exchange(is_first, false);
    if (open.recompute) choice.options.recompute = RecomputeChoice::kAuto;
    if (!may_fit(choice.options, ops, budget)) continue;
    plan_choice(choice, ops, budget);
    if (!choice.fits) continue;
    choice.is_quickest = was_first && choice.cost.recomputed == 0;
    if (!best || choice.cost.seconds() < best->cost.seconds()) best = std::move(choice);
  }
  return best ? *best : planned(nearest);
}

std::string text(const MemoryChoice& choice, std::size_t budget) {
  const TrainOptions& options = choice.options;
  const StepCost& cost = choice.cost;
  const BatchChoice batch = solved(options.batch);
  const auto bytes = [](std::size_t count) { return format_bytes(static_cast<double>(count)); };
  std::string said =
      fmt::format("parallel.zero = {}, train.micro_batch_size = {} ({} a step), recomputes {}",
                  options.parallel.zero, batch.micro, batch.accumulation,
                  options.recompute_of_blocks.empty()
                      ? std::string(name(options.recompute))
                      : nn::text(options.recompute_of_blocks, model_of(options)));
  const nn::Tiers& tiers = options.offload.tiers;
  if (tiers.any()) {
    said += fmt::format(", optimizer {}, gradients {}, parameters {}, activations {}",
                        name(tiers.optimizer), name(tiers.gradients), name(tiers.parameters),
                        name(tiers.activations));
  }
  said += fmt::format(": takes {}", bytes(choice.bytes));
  if (budget > 0) said += fmt::format(" of {}", bytes(budget));
  if (options.device_limit > 0) {
    said += fmt::format(", {} of {} on the device", bytes(choice.device_bytes),
                        bytes(options.device_limit));
  }
  if (!choice.fits)
    return said + ", which does not fit; no setting that may be chosen comes closer";
  said += fmt::format("; a worker's step computes {}, of which {:.1f} % is recomputed",
                      format_si(cost.flops, "FLOP"), 100 * cost.recomputed / cost.flops);
  if (cost.sent) {
    said += fmt::format(", and sends {}", format_si(static_cast<double>(*cost.sent), "B"));
  }
  if (cost.moved > 0) {
    said += fmt::format(", {} move to the host and back", format_si(cost.moved, "B"));
  }
  if (cost.filed > 0) {
    said += fmt::format(", {} move to files and back", format_si(cost.filed, "B"));
  }
  return choice.is_quickest ? said : said + "; faster settings do not fit";
}

}  // namespace lockstep::train
