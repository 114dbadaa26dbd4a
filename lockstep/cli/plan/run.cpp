#include "lockstep/cli/plan/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/plan/alternatives.h"
#include "lockstep/cli/plan/budget.h"
#include "lockstep/cli/plan/pipeline.h"
#include "lockstep/cli/plan/question.h"
#include "lockstep/cli/run_arguments.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/nn/memory/recompute_search.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/run/resolve.h"
#include "lockstep/train/run/start.h"
#include "lockstep/train/run/unused_settings.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;
using nn::MemoryPlan;
using train::TrainOptions;

// What was found besides the plan of the settings themselves.
struct Answer {
  std::size_t budget = 0;  // bytes; 0: none
  std::string chosen;      // by memory.auto
  std::vector<Alternative> alternatives;
};

std::string si_bytes(std::size_t bytes) { return format_si(static_cast<double>(bytes), "B"); }

// Of a model that no plan::ModelShape describes.
std::string model_text(const MemoryPlan& plan) {
  return fmt::format("{} parameters in {} blocks\n", format_count(plan.flat.count()),
                     plan.flat.blocks());
}

std::string strategy_text(const TrainOptions& options) {
  const parallel::ParallelOptions& spread = options.parallel;
  const auto axis = [](std::string_view name, int extent) {
    return extent > 1 ? fmt::format(" x {} {}", name, extent) : "";
  };
  const std::string groups = axis("pipeline", spread.pipeline) + axis("expert", spread.expert) +
                             axis("context", spread.context) + axis("tensor", spread.tensor);
  return (spread.zero > 0 ? fmt::format("zero {}", spread.zero)
                          : std::string(name(spread.strategy))) +
         groups;
}

std::string recompute_text(const TrainOptions& options) {
  if (options.recompute_of_blocks.empty()) return std::string(name(options.recompute));
  return fmt::format("{} ({})", name(options.recompute),
                     nn::text(options.recompute_of_blocks, train::model_of(options)));
}

std::string heading(const TrainOptions& options, const MemoryPlan& plan, const Ops& ops) {
  const nn::Setup& setup = plan.setup;
  const auto accumulation = static_cast<std::size_t>(train::solved(options.batch).accumulation);
  const std::size_t tokens = static_cast<std::size_t>(setup.shape.tokens()) * accumulation;
  const int tensor = options.parallel.tensor;
  const int stages = options.parallel.pipeline;
  const std::string of_many =
      options.batch.workers > 1
          ? fmt::format("worker 0 of {}, {}: ", options.batch.workers, strategy_text(options))
      : stages > 1 ? fmt::format("stage 0 of {}{}: ", stages,
                                 tensor > 1 ? fmt::format(" x tensor {}", tensor) : "")
      : tensor > 1 ? fmt::format("rank 0 of a tensor group of {}: ", tensor)
                   : "";
  return fmt::format(
      "{}{}{} in {} micro-batch{} of {} x {}: {} tokens a step\n"
      "computes in {}, gradients in {}, optimizer {}, recompute {}, on {}\n",
      train::has_shape(options) ? describe(train::shape_of(options)) : model_text(plan), of_many,
      counted(static_cast<std::size_t>(setup.shape.batch) * accumulation, "sequence"), accumulation,
      accumulation == 1 ? "" : "es", setup.shape.batch, setup.shape.sequence, format_count(tokens),
      plan::name(options.precision), name(setup.gradient), name(options.optimizer.kind),
      recompute_text(options), ops.name());
}

std::string memory_text(const MemoryPlan& plan) {
  TextTable table("lrrr");
  for (const nn::ClassLine& line : class_lines(plan)) {
    table.row({line.name, si_bytes(line.bytes()), format_count(line.bytes()),
               line.count == 1 ? "" : fmt::format("{} x {}", line.count, si_bytes(line.each))});
  }
  table.row({"all", si_bytes(plan.bytes()), format_count(plan.bytes()), ""});
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kFile}) {
    if (!plan.tiers.any() || plan.bytes(tier) == 0) continue;
    table.row({fmt::format("  {} {}", tier == Tier::kFile ? "and in" : "on the", name(tier)),
               si_bytes(plan.bytes(tier)), format_count(plan.bytes(tier)), ""});
  }
  for (const GroupBytes& group : plan.by_class(Tier::kFile)) {
    if (group.bytes == 0) continue;
    table.row({"    " + group.group, si_bytes(group.bytes), format_count(group.bytes), ""});
  }
  return "\nmemory at its peak, to the byte\n" + table.text();
}

std::string flops_text(const TrainOptions& options, const MemoryPlan& plan) {
  TextTable table("lrr");
  const double times = train::solved(options.batch).accumulation;
  const auto row = [&](std::string part, double flops) {
    table.row(
        {std::move(part), format_si(flops * times, "FLOP"), fmt::format("{:.4g}", flops * times)});
  };
  row("forward", plan.flops.forward);
  row("backward", plan.flops.backward);
  row("recomputed", plan.flops.recompute);
  row("all", plan.flops.total());
  return "\nFLOPs of a step, matrix products alone\n" + table.text();
}

// What a rank sends to its tensor group in a step.
std::uint64_t tensor_bytes(const TrainOptions& options, const MemoryPlan& plan) {
  std::uint64_t bytes = 0;
  for (const nn::BlockSpec& spec : plan.specs) bytes += spec.tensor_bytes;
  return bytes * static_cast<std::uint64_t>(train::solved(options.batch).accumulation);
}

std::string tensor_text(const TrainOptions& options, const MemoryPlan& plan) {
  if (options.parallel.tensor == 1) return "";
  const std::uint64_t bytes = tensor_bytes(options, plan);
  TextTable table("lrr");
  table.row({"activations", si_bytes(bytes), format_count(bytes)});
  return "\na rank sends to its tensor group in a step\n" + table.text();
}

// The same of its context group.
std::uint64_t context_bytes(const TrainOptions& options, const MemoryPlan& plan) {
  std::uint64_t bytes = 0;
  for (const nn::BlockSpec& spec : plan.specs) bytes += spec.context_bytes;
  return bytes * static_cast<std::uint64_t>(train::solved(options.batch).accumulation);
}

std::string context_text(const TrainOptions& options, const MemoryPlan& plan) {
  if (options.parallel.context == 1) return "";
  const std::uint64_t bytes = context_bytes(options, plan);
  TextTable table("lrr");
  table.row({"attention", si_bytes(bytes), format_count(bytes)});
  return "\na rank sends to its context group in a step\n" + table.text();
}

// The same of its expert group, if tokens choose all experts equally often.
std::uint64_t expert_bytes(const TrainOptions& options, const MemoryPlan& plan) {
  std::uint64_t bytes = 0;
  for (const nn::BlockSpec& spec : plan.specs) bytes += spec.expert_bytes;
  return bytes * static_cast<std::uint64_t>(train::solved(options.batch).accumulation);
}

std::string expert_text(const TrainOptions& options, const MemoryPlan& plan) {
  if (options.parallel.expert == 1) return "";
  const std::uint64_t bytes = expert_bytes(options, plan);
  TextTable table("lrr");
  table.row({"rows of tokens", si_bytes(bytes), format_count(bytes)});
  return "\na rank sends to its expert group in a step, if all experts are chosen equally often\n" +
         table.text();
}

std::string traffic_text(const TrainOptions& options, const MemoryPlan& plan) {
  if (options.batch.workers == 1) return "";
  const auto traffic = traffic_of(options, plan);
  if (!traffic) {
    return "\nbytes that a worker sends in a step: unknown before the run with compression, "
           "parameter servers, or expert groups on several nodes\n";
  }
  TextTable table("lrrrr");
  const int machines = options.parallel.machines;
  if (machines > 1) {
    table.row({"", "", "a worker", "all of them inside nodes", "between nodes"});
  }
  const auto row = [&](std::string part, const parallel::SentBytes& sent) {
    if (sent.all == 0) return;
    std::vector<std::string> cells{std::move(part), si_bytes(sent.all), format_count(sent.all), "",
                                   ""};
    if (machines > 1) {
      cells[3] = format_count(sent.links.inside);
      cells[4] = format_count(sent.links.across);
    }
    table.row(cells);
  };
  row("gradients", traffic->gradients);
  row("parameters", traffic->parameters);
  row("rows of the table", traffic->rows);
  row("all", traffic->total());
  return machines > 1
             ? fmt::format("\nworkers on {} nodes send in a step\n{}", machines, table.text())
             : "\na worker sends in a step\n" + table.text();
}

std::string limit_text(std::string_view key, std::size_t limit, std::size_t bytes) {
  if (limit == 0 || bytes > limit) return "";
  return fmt::format("\nfits into {} = {}, with {} to spare\n", key, budget_text(limit),
                     si_bytes(limit - bytes));
}

std::string limits_text(const TrainOptions& options, const MemoryPlan& plan) {
  return limit_text("memory.limit", options.memory_limit, plan.bytes()) +
         limit_text("memory.device_limit", options.device_limit, plan.bytes(Tier::kDevice));
}

Json modes_of(const MemoryPlan& plan) {
  Json modes = Json::array();
  for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
    modes.push_back(plan::name(plan.setup.of(i).recompute));
  }
  return modes;
}

Json classes_json(const std::vector<GroupBytes>& groups) {
  Json classes = Json::array();
  for (const GroupBytes& group : groups) {
    classes.push_back({{"class", group.group}, {"bytes", group.bytes}});
  }
  return classes;
}

std::string json_text(const TrainOptions& options, const MemoryPlan& plan, const Ops& ops,
                      const Answer& answer) {
  const double times = train::solved(options.batch).accumulation;
  Json object{{"model", train::model_of(options).name()},
              {"parameters", plan.flat.count()},
              {"precision", plan::name(options.precision)},
              {"gradients", name(plan.setup.gradient)},
              {"recompute", name(options.recompute)},
              {"recompute_blocks", modes_of(plan)},
              {"optimizer", name(options.optimizer.kind)},
              {"batch", plan.setup.shape.batch},
              {"sequence", plan.setup.shape.sequence},
              {"accumulation", train::solved(options.batch).accumulation},
              {"ops", ops.name()},
              {"bytes", plan.bytes()},
              {"device_bytes", plan.bytes(Tier::kDevice)},
              {"host_bytes", plan.bytes(Tier::kHost)},
              {"file_bytes", plan.bytes(Tier::kFile)},
              {"lower_bound", plan.layout.lower_bound},
              {"classes", classes_json(plan.by_class())},
              {"file_classes", classes_json(plan.by_class(Tier::kFile))},
              {"flops",
               {{"forward", plan.flops.forward * times},
                {"backward", plan.flops.backward * times},
                {"recomputed", plan.flops.recompute * times},
                {"total", plan.flops.total() * times}}}};
  object["ranks"] = options.batch.workers * parallel::ranks_per_worker(options.parallel);
  object["tensor"] = options.parallel.tensor;
  object["tensor_bytes"] = tensor_bytes(options, plan);
  object["context"] = options.parallel.context;
  object["context_bytes"] = context_bytes(options, plan);
  object["expert"] = options.parallel.expert;
  object["expert_bytes"] = expert_bytes(options, plan);
  if (options.parallel.pipeline > 1) object["pipeline"] = json_of(plan_pipeline(options, ops));
  object["zero"] = options.parallel.zero;
  object["sent"] = json_of(traffic_of(options, plan));
  if (!answer.alternatives.empty()) {
    object["alternatives"] = json_of(answer.alternatives, answer.budget);
  }
  if (!answer.chosen.empty()) object["chosen"] = answer.chosen;
  if (options.memory_limit > 0) {
    object["limit"] = options.memory_limit;
    object["fits"] = plan.bytes() <= options.memory_limit;
  } else if (answer.budget > 0) {
    object["budget"] = answer.budget;
    object["fits"] = plan.bytes() <= answer.budget;
  }
  if (options.device_limit > 0) {
    object["device_limit"] = options.device_limit;
    object["fits_device"] = plan.bytes(Tier::kDevice) <= options.device_limit;
  }
  return object.dump(2) + "\n";
}

}  // namespace

void plan_run(const RunQuestion& question) {
  train::RunSettings given;
  read_run_arguments(given, question.arguments);
  const parallel::ParallelOptions& parallel = given.options.train.parallel;
  // Without a number of ranks, as many as a sequence needs.
  const int ranks_of_run =
      question.ranks.empty() ? parallel::ranks_per_model(parallel) : question.ranks.front();
  // Servers come on top of them.
  const int workers = parallel::has_own_servers(parallel)
                          ? ranks_of_run
                          : parallel::workers_of(parallel, ranks_of_run);
  const train::RunSettings planned = train::plan_job(given, {.workers = workers});
  const Config& config = planned.config;
  const train::RunOptions& run = planned.options;

  TrainOptions options = train::with_data(run.train, run.data);
  // As many as the launcher gives each rank of this machine.
  if (options.threads == 0) {
    const CpuSet all = CpuSet::of_this_thread();
    options.threads = all.share(0, ranks_of_run).value_or(all).count();
  }
  const auto ops = train::make_ops(options);
  Answer answer{.budget = question.budget > 0 ? question.budget : options.memory_limit};
  // The limit that the run will respect; a budget is only a question.
  const std::size_t available =
      options.memory_limit == 0 && answer.budget > 0
          ? answer.budget
          : train::memory_budget(options, ops->device(), options.batch.workers);
  if (options.memory_auto) {
    const train::MemoryChoice choice =
        train::choose_memory(options, train::open_settings(config), *ops, available);
    answer.chosen = text(choice, available);
    options = choice.options;
  }
  train::settle_recompute(options, *ops, available);
  const MemoryPlan plan = train::plan_run(options, *ops);
  std::vector<int> ranks = question.ranks;
  if (ranks.empty() && question.budget > 0) {
    ranks = {options.batch.workers * parallel::ranks_per_worker(options.parallel)};
  }
  const int machines = std::max(run.comm.emulated_nodes, 1);
  answer.alternatives = plan_alternatives(options, ranks, machines, answer.budget, *ops);
  if (question.json) {
    fmt::print("{}", json_text(options, plan, *ops, answer));
  } else {
    fmt::print(
        "{}{}{}{}{}{}{}{}{}{}{}", heading(options, plan, *ops),
        answer.chosen.empty() ? "" : fmt::format("memory.auto: {}\n", answer.chosen),
        memory_text(plan),
        options.parallel.pipeline > 1 ? text(plan_pipeline(options, *ops)) : std::string(),
        traffic_text(options, plan), tensor_text(options, plan), context_text(options, plan),
        expert_text(options, plan), flops_text(options, plan), limits_text(options, plan),
        answer.alternatives.empty() ? "" : text(answer.alternatives, machines, answer.budget));
  }
  std::fflush(stdout);
  train::RunOptions settled = run;
  settled.train = options;
  for (const std::string& text : train::unused_settings(settled, config, *ops)) {
    fmt::print(stderr, "warning: {}\n", text);
  }
  const bool chooses = options.memory_auto || options.recompute == train::RecomputeChoice::kAuto;
  if (chooses && question.budget == 0) return train::check_budget(options, *ops, available);
  train::check_limit(options, plan, *ops);
}

}  // namespace lockstep::cli
