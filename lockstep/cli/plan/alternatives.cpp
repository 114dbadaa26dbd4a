#include "lockstep/cli/plan/alternatives.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/plan/budget.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;
using train::RecomputeChoice;
using train::TrainOptions;

std::string si(std::size_t bytes) { return format_si(static_cast<double>(bytes), "B"); }

std::optional<Alternative> planned_so(TrainOptions options, int ranks, std::size_t budget,
                                      const Ops& ops) {
  if (!train::goes_together(options)) return std::nullopt;
  train::settle_recompute(options, ops, budget);
  const nn::MemoryPlan plan = train::plan_run(options, ops);
  return Alternative{
      .ranks = ranks,
      .zero = options.parallel.zero,
      .recompute = options.recompute,
      .parts = parts_of(plan),
      .bytes = plan.bytes(),
      .traffic = traffic_of(options, plan),
      .recomputed = plan.flops.recompute / (plan.flops.forward + plan.flops.backward)};
}

// At a stage of ZeRO, with what of ZeRO++ there is of it.
parallel::ParallelOptions at_stage(parallel::ParallelOptions options, int zero) {
  options.zero = zero;
  if (zero > 0) options.strategy = parallel::StrategyKind::kDdp;
  if (zero < 3) {
    options.quantized_weights = parallel::Quantization::kNone;
    options.secondary_partition = false;
  }
  if (zero == 0) options.quantized_gradients = parallel::Quantization::kNone;
  return options;
}

std::string across_text(const std::optional<parallel::Traffic>& traffic) {
  return traffic ? si(traffic->total().links.across) : "?";
}

}  // namespace

PlanParts parts_of(const nn::MemoryPlan& plan) {
  PlanParts parts;
  for (const GroupBytes& group : plan.by_class()) {
    const bool kept = group.group.starts_with("activations") || group.group == "hand-over";
    std::size_t& part = group.group == "parameters"  ? parts.parameters
                        : group.group == "gradients" ? parts.gradients
                        : group.group == "optimizer" ? parts.optimizer
                        : kept                       ? parts.activations
                                                     : parts.buffers;
    part += group.bytes;
  }
  return parts;
}

std::optional<parallel::Traffic> traffic_of(const TrainOptions& options,
                                            const nn::MemoryPlan& plan) {
  const train::BatchChoice batch = train::solved(options.batch);
  return parallel::traffic_of(
      options.parallel,
      {.workers = batch.workers, .worker = 0, .most_micro_batches = batch.accumulation}, plan);
}

Json json_of(const std::optional<parallel::Traffic>& traffic) {
  if (!traffic) return nullptr;
  const auto parts = [&](auto bytes) {
    return Json{{"gradients", bytes(traffic->gradients)},
                {"parameters", bytes(traffic->parameters)},
                {"rows", bytes(traffic->rows)},
                {"total", bytes(traffic->total())}};
  };
  using parallel::SentBytes;
  Json json = parts([](const SentBytes& sent) { return sent.all; });
  json["inside"] = parts([](const SentBytes& sent) { return sent.links.inside; });
  json["across"] = parts([](const SentBytes& sent) { return sent.links.across; });
  return json;
}

std::vector<Alternative> plan_alternatives(const TrainOptions& planned, std::span<const int> ranks,
                                           int machines, std::size_t budget, const Ops& ops) {
  using enum RecomputeChoice;
  std::vector<RecomputeChoice> modes{kNone, kSelective, kFull};
  if (budget > 0) modes.push_back(kAuto);
  TrainOptions options = planned;
  options.batch = train::solved(planned.batch);
  options.batch.sequences = 0;
  options.recompute_of_blocks.clear();
  std::vector<Alternative> all;
  for (const int count : ranks) {
    const int per_worker = parallel::ranks_per_worker(planned.parallel);
    if (count % parallel::ranks_per_model(planned.parallel) != 0) continue;
    options.batch.workers = count / per_worker;
    for (int zero = 0; zero < plan::kZeroStages; ++zero) {
      options.parallel = at_stage(planned.parallel, zero);
      options.parallel.machines = count > 1 ? machines : 1;
      for (const RecomputeChoice mode : modes) {
        options.recompute = mode;
        if (auto one = planned_so(options, count, budget, ops)) all.push_back(std::move(*one));
      }
    }
  }
  return all;
}

std::string text(std::span<const Alternative> alternatives, int machines, std::size_t budget) {
  TextTable table(machines > 1 ? "rrlrrrrrrrrrl" : "rrlrrrrrrrrl");
  const auto add = [&](std::vector<std::string> cells, std::string across) {
    if (machines > 1) cells.insert(cells.end() - 2, std::move(across));
    table.row(std::move(cells));
  };
  add({"ranks", "zero", "recompute", "parameters", "gradients", "optimizer", "activations",
       "buffers", "all", "sent", "FLOPs", budget > 0 ? "fits" : ""},
      "across");
  for (const Alternative& each : alternatives) {
    const PlanParts& parts = each.parts;
    add({fmt::to_string(each.ranks), fmt::to_string(each.zero), std::string(name(each.recompute)),
         si(parts.parameters), si(parts.gradients), si(parts.optimizer), si(parts.activations),
         si(parts.buffers), si(each.bytes), each.traffic ? si(each.traffic->total().all) : "?",
         fmt::format("+{:.1f} %", 100 * each.recomputed), each.bytes <= budget ? "*" : ""},
        across_text(each.traffic));
  }
  return fmt::format("\none worker by ranks, ZeRO stage and recomputation{}{}\n{}",
                     machines > 1 ? "; across: what all workers send between nodes" : "",
                     budget > 0 ? fmt::format("; * fits into {}", budget_text(budget)) : "",
                     table.text());
}

Json json_of(std::span<const Alternative> alternatives, std::size_t budget) {
  Json array = Json::array();
  for (const Alternative& each : alternatives) {
    Json line{{"ranks", each.ranks},
              {"zero", each.zero},
              {"recompute", name(each.recompute)},
              {"bytes", each.bytes},
              {"parameters", each.parts.parameters},
              {"gradients", each.parts.gradients},
              {"optimizer", each.parts.optimizer},
              {"activations", each.parts.activations},
              {"buffers", each.parts.buffers},
              {"sent", json_of(each.traffic)},
              {"recomputed", each.recomputed}};
    if (budget > 0) line["fits"] = each.bytes <= budget;
    array.push_back(std::move(line));
  }
  return array;
}

}  // namespace lockstep::cli
