#include "lockstep/train/run/facts.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "lockstep/base/system/resident.h"
#include "lockstep/train/observe/peak.h"
#include "lockstep/train/run/start.h"

namespace lockstep::train {
namespace {

// Micro-batches of a step.
std::vector<double> work_of_workers(const RunParts& run) {
  const BatchChoice& batch = run.resolved.options().train.batch;
  std::vector<double> work;
  for (int i = 0; run.strategy.in_lockstep() && i < run.strategy.workers(); ++i) {
    const auto share = parallel::share_of(step_plan(batch), 1, i, run.strategy.workers());
    work.push_back(static_cast<double>(share.micro_batches));
  }
  return work;
}

std::string strategy_text(const parallel::Strategy& strategy, int tensor) {
  const std::string name(strategy.name());
  if (tensor == 1) return name;
  const std::string groups = fmt::format("tensor {}", tensor);
  return strategy.workers() > 1 ? name + " x " + groups : groups;
}

// Of all ranks of a tensor group together.
std::size_t count_parameters(const nn::FlatParameters& flat) {
  std::size_t count = 0;
  for (const nn::FlatParameter& parameter : flat.all()) {
    count += logical_shape(parameter.shape, parameter.shard).elements();
  }
  return count;
}

// Of a micro-batch through the whole model.
double flops_of_model(const TrainOptions& options, const Ops& ops) {
  double flops = 0;
  for (const nn::BlockSpec& spec : specs_of(whole_model_of(options), setup_of(options), ops)) {
    flops += spec.forward_flops + spec.backward_flops;
  }
  return flops;
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
  facts.step_tokens = step.sequences * plan.setup.shape.sequence;
  facts.folder = options.dir;
  facts.model = run.trainer.replica().model().name();
  facts.precision = plan::name(options.train.precision);
  facts.hardware = run.ops.name();
  facts.config = run.resolved.config().resolved();
  facts.data = describe(options.data, run.dataset, run.source);
  facts.parameters = count_parameters(plan.flat);
  facts.workers = run.group.size();
  facts.strategy = strategy_text(run.strategy, options.train.parallel.tensor);
  facts.work = work_of_workers(run);
  facts.step_flops = flops_of_model(options.train, run.ops) * micro_batches;
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
  return facts;
}

}  // namespace lockstep::train
