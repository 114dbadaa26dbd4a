#include "lockstep/cli/plan_run.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/plan_question.h"
#include "lockstep/cli/run_arguments.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/train/model_of_start.h"
#include "lockstep/train/run_plan.h"
#include "lockstep/train/run_start.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;
using nn::MemoryPlan;
using train::TrainOptions;

std::string si_bytes(std::size_t bytes) { return format_si(static_cast<double>(bytes), "B"); }

// Of a model that no plan::ModelShape describes.
std::string model_text(const MemoryPlan& plan) {
  return fmt::format("{} parameters in {} blocks\n", format_count(plan.flat.count()),
                     plan.flat.blocks());
}

std::string strategy_text(const TrainOptions& options) {
  const parallel::ParallelOptions& spread = options.parallel;
  return spread.zero > 0 ? fmt::format("zero {}", spread.zero) : std::string(name(spread.strategy));
}

std::string heading(const TrainOptions& options, const MemoryPlan& plan, const Ops& ops) {
  const nn::Setup& setup = plan.setup;
  const auto accumulation = static_cast<std::size_t>(train::solved(options.batch).accumulation);
  const std::size_t tokens = static_cast<std::size_t>(setup.shape.rows()) * accumulation;
  const std::string of_many =
      options.batch.workers > 1
          ? fmt::format("worker 0 of {}, {}: ", options.batch.workers, strategy_text(options))
          : "";
  return fmt::format(
      "{}{}{} in {} micro-batch{} of {} x {}: {} tokens a step\n"
      "computes in {}, gradients in {}, optimizer {}, recompute {}, on {}\n",
      train::has_shape(options) ? describe(train::shape_of(options)) : model_text(plan), of_many,
      fmt::format("{} sequences", static_cast<std::size_t>(setup.shape.batch) * accumulation),
      accumulation, accumulation == 1 ? "" : "es", setup.shape.batch, setup.shape.sequence,
      format_count(tokens), name(setup.dtype), name(setup.gradient), name(options.optimizer.kind),
      name(options.recompute), ops.name());
}

std::string memory_text(const MemoryPlan& plan) {
  TextTable table("lrrr");
  for (const nn::ClassLine& line : class_lines(plan)) {
    table.row({line.name, si_bytes(line.bytes()), format_count(line.bytes()),
               line.count == 1 ? "" : fmt::format("{} x {}", line.count, si_bytes(line.each))});
  }
  table.row({"all", si_bytes(plan.bytes()), format_count(plan.bytes()), ""});
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

std::string limit_text(const TrainOptions& options, const MemoryPlan& plan) {
  if (options.memory_limit == 0 || plan.bytes() > options.memory_limit) return "";
  return fmt::format("\nfits into memory.limit = {}, with {} to spare\n",
                     format_bytes(static_cast<double>(options.memory_limit)),
                     format_bytes(static_cast<double>(options.memory_limit - plan.bytes())));
}

// One worker's bytes for each number of ranks, stage and recomputation, with its micro-batches as
// they are.
struct Alternative {
  int ranks = 1;
  int zero = 0;
  plan::Recompute recompute = plan::Recompute::kNone;
  std::optional<std::size_t> bytes;  // nothing: its settings do not go together
};

std::optional<std::size_t> bytes_of(const TrainOptions& options, const Ops& ops) {
  try {
    parallel::check(options.parallel, options.batch.workers);
  } catch (const Error&) {
    return std::nullopt;
  }
  return train::plan_run(options, ops).bytes();
}

std::vector<Alternative> alternatives(const TrainOptions& planned, std::span<const int> ranks,
                                      const Ops& ops) {
  std::vector<Alternative> all;
  for (const int count : ranks) {
    TrainOptions options = planned;
    options.batch = train::solved(planned.batch);
    options.batch.sequences = 0;
    for (int zero = 0; zero < plan::kZeroStages; ++zero) {
      options.parallel.zero = zero;
      if (zero > 0) options.parallel.strategy = parallel::StrategyKind::kDdp;
      options.batch.workers = parallel::workers_of(options.parallel, count);
      for (const plan::Recompute recompute : plan::kAllRecompute) {
        options.recompute = recompute;
        all.push_back({count, zero, recompute, bytes_of(options, ops)});
      }
    }
  }
  return all;
}

std::string alternatives_text(const TrainOptions& options,
                              std::span<const Alternative> alternatives) {
  const std::size_t limit = options.memory_limit;
  TextTable table("rrrrr");
  std::vector<std::string> head{"ranks", "zero"};
  for (const plan::Recompute recompute : plan::kAllRecompute) {
    head.push_back(fmt::format("{}", plan::name(recompute)));
  }
  table.row(head);
  for (std::size_t i = 0; i < alternatives.size(); i += std::size(plan::kAllRecompute)) {
    std::vector<std::string> row{fmt::format("{}", alternatives[i].ranks),
                                 fmt::format("{}", alternatives[i].zero)};
    for (std::size_t k = 0; k < std::size(plan::kAllRecompute); ++k) {
      const std::optional<std::size_t> bytes = alternatives[i + k].bytes;
      const char* mark = limit == 0 ? "" : bytes && *bytes <= limit ? " *" : "  ";
      row.push_back((bytes ? si_bytes(*bytes) : "-") + mark);
    }
    table.row(row);
  }
  return fmt::format("\none worker, by ZeRO stage and recomputation{}\n{}",
                     limit == 0 ? "" : ": * fits into memory.limit", table.text());
}

std::string json_of(const TrainOptions& options, const MemoryPlan& plan, const Ops& ops,
                    std::span<const Alternative> alternatives) {
  Json classes = Json::array();
  for (const GroupBytes& group : plan.by_class()) {
    classes.push_back({{"class", group.group}, {"bytes", group.bytes}});
  }
  const double times = train::solved(options.batch).accumulation;
  Json object{{"model", train::model_of(options).name()},
              {"parameters", plan.flat.count()},
              {"precision", name(plan.setup.dtype)},
              {"gradients", name(plan.setup.gradient)},
              {"recompute", name(options.recompute)},
              {"optimizer", name(options.optimizer.kind)},
              {"batch", plan.setup.shape.batch},
              {"sequence", plan.setup.shape.sequence},
              {"accumulation", train::solved(options.batch).accumulation},
              {"ops", ops.name()},
              {"bytes", plan.bytes()},
              {"lower_bound", plan.layout.lower_bound},
              {"classes", std::move(classes)},
              {"flops",
               {{"forward", plan.flops.forward * times},
                {"backward", plan.flops.backward * times},
                {"recomputed", plan.flops.recompute * times},
                {"total", plan.flops.total() * times}}}};
  object["ranks"] = options.batch.workers;
  object["zero"] = options.parallel.zero;
  for (const Alternative& each : alternatives) {
    if (!each.bytes) continue;
    object["alternatives"].push_back({{"ranks", each.ranks},
                                      {"zero", each.zero},
                                      {"recompute", plan::name(each.recompute)},
                                      {"bytes", *each.bytes}});
  }
  if (options.memory_limit > 0) {
    object["limit"] = options.memory_limit;
    object["fits"] = plan.bytes() <= options.memory_limit;
  }
  return object.dump(2) + "\n";
}

}  // namespace

void plan_run(const std::vector<std::string>& arguments, std::span<const int> ranks, bool json) {
  train::RunOptions run;
  Config config;
  train::bind(config, run);
  read_run_arguments(config, run, arguments);
  if (!ranks.empty()) {
    run.train.batch.workers = parallel::workers_of(run.train.parallel, ranks.front());
  }
  train::complete(run);
  train::settle_model(run);
  train::fill_from_data(run.train, run.data);

  const TrainOptions& options = run.train;
  const auto ops = make_cpu_ops(train::threads_of(options));
  const MemoryPlan plan = train::plan_run(options, *ops);
  const std::vector<Alternative> others = alternatives(options, ranks, *ops);
  if (json) {
    fmt::print("{}", json_of(options, plan, *ops, others));
  } else {
    fmt::print("{}{}{}{}{}", heading(options, plan, *ops), memory_text(plan),
               flops_text(options, plan), limit_text(options, plan),
               others.empty() ? "" : alternatives_text(options, others));
  }
  std::fflush(stdout);
  train::check_limit(options, plan, *ops);
}

}  // namespace lockstep::cli
