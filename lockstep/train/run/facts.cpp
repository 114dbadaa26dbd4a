#include "lockstep/train/run/facts.h"

#include <fmt/format.h>

#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/system/resident.h"
#include "lockstep/train/observe/peak.h"
#include "lockstep/train/run/start.h"

namespace lockstep::train {
namespace {

// The same for every rank of a pipeline: stages have unequal parts of the model.
std::vector<double> work_of_stages(const TrainOptions& options, const std::vector<double>& work) {
  if (options.parallel.pipeline == 1) return work;
  const std::vector<double> flops = cut_of(options).flops;
  const double mean =
      std::accumulate(flops.begin(), flops.end(), 0.0) / static_cast<double>(flops.size());
  std::vector<double> all;
  for (const double stage : flops) {
    for (const double one : work) all.push_back(one * stage / mean);
  }
  return all;
}

// Micro-batches of a step.
std::vector<double> work_of_workers(const RunParts& run) {
  const BatchChoice& batch = run.resolved.options().train.batch;
  std::vector<double> work;
  for (int i = 0; run.strategy.in_lockstep() && i < run.strategy.workers(); ++i) {
    const auto share = parallel::share_of(step_plan(batch), 1, i, run.strategy.workers());
    work.push_back(static_cast<double>(share.micro_batches));
  }
  return work_of_stages(run.resolved.options().train, work);
}

std::string strategy_text(const parallel::Strategy& strategy,
                          const parallel::ParallelOptions& options) {
  std::vector<std::string> parts;
  const bool divides = parallel::ranks_per_worker(options) > 1;
  if (strategy.workers() > 1 || !divides) parts.emplace_back(strategy.name());
  if (options.pipeline > 1) {
    parts.push_back(fmt::format("pipeline {} ({})", options.pipeline, options.pipeline_schedule));
  }
  if (options.context > 1) parts.push_back(fmt::format("context {}", options.context));
  if (options.expert > 1) parts.push_back(fmt::format("expert {}", options.expert));
  if (options.tensor > 1) parts.push_back(fmt::format("tensor {}", options.tensor));
  return fmt::format("{}", fmt::join(parts, " x "));
}

// Of the whole model, however many ranks divide it: its parameters, and the FLOPs of a micro-batch.
struct ModelSize {
  std::size_t parameters = 0;
  double flops = 0;
};
ModelSize size_of_model(TrainOptions options, const Ops& ops) {
  options.parallel.context = 1;
  options.parallel.context_rank = 0;
  ModelSize size;
  for (const nn::BlockSpec& spec : specs_of(whole_model_of(options), setup_of(options), ops)) {
    size.flops += spec.forward_flops + spec.backward_flops;
    for (const nn::ParameterSpec& parameter : spec.parameters) {
      if (parameter.tied_to.empty()) size.parameters += parameter.shape.elements();
    }
  }
  return size;
}

// Lines as text, for the other ranks: "COUNT EACH NAME", a line each.
std::string memory_text(const std::vector<nn::ClassLine>& lines) {
  std::string text;
  for (const nn::ClassLine& line : lines) {
    text += fmt::format("{} {} {}\n", line.count, line.each, line.name);
  }
  return text;
}
std::vector<nn::ClassLine> parse_memory(const std::string& text) {
  std::vector<nn::ClassLine> lines;
  std::istringstream stream(text);
  nn::ClassLine line;
  while (stream >> line.count >> line.each && stream.ignore() && std::getline(stream, line.name)) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

RunFacts run_facts(RunParts run) {
  const RunOptions& options = run.resolved.options();
  const nn::MemoryPlan& plan = run.trainer.replica().plan();
  const parallel::StepPlan step = step_plan(options.train.batch);
  const auto micro_batches = static_cast<double>(step.micro_batches());
  RunFacts facts;
  facts.batch = step.sequences;
  facts.micro_batch = step.micro;
  facts.step_tokens = step.sequences * plan.setup.shape.sequence * plan.setup.context.size;
  facts.folder = options.dir;
  facts.name = options.name;
  facts.model = run.trainer.replica().model().name();
  facts.precision = plan::name(options.train.precision);
  facts.hardware = run.ops.name();
  facts.config = run.resolved.config().resolved();
  facts.data = describe(options.data, run.dataset, run.source);
  const ModelSize size = size_of_model(options.train, run.ops);
  facts.parameters = size.parameters;
  const nn::Model model = unstaged_model_of(options.train);
  for (std::size_t i = 0; i < model.size(); ++i) {
    facts.blocks.push_back(model.block(i).name());
  }
  facts.workers = run.group.size();
  facts.strategy = strategy_text(run.strategy, options.train.parallel);
  facts.work = work_of_workers(run);
  facts.step_flops = size.flops * micro_batches;
  // All at once, as they will compute.
  const RankPeak peak = measure_rank_peak(run.ops, plan.setup.dtype, threads_of(options.train));
  std::vector<RankPeak> peaks;
  for (const std::string& text : run.group.texts(peak.text())) {
    peaks.push_back(RankPeak::parse(text));
  }
  facts.peak_flops = peak_of_ranks(peaks);
  reset_peak_resident();  // its memory is none of the run's
  facts.steps = options.steps;
  facts.first_step = run.trainer.state().steps + 1;
  facts.memory = class_lines(plan);
  facts.memory_bytes = plan.bytes();
  facts.memory_over_steps = nn::memory_over_steps(plan);
  const nn::Model& own_model = run.trainer.replica().model();
  for (std::size_t i = 0; i < own_model.size(); ++i) {
    facts.blocks_of_rank.push_back(own_model.block(i).name());
  }
  for (const std::string& text : run.group.texts(memory_text(facts.memory))) {
    facts.memory_of_ranks.push_back(parse_memory(text));
  }
  return facts;
}

}  // namespace lockstep::train
