#include "lockstep/cli/plan/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/parallel/gradients/shared_blocks.h"
#include "lockstep/plan/pipeline/timetable.h"
#include "lockstep/plan/pipeline/verify.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::cli {
namespace {

std::string blocks_text(const nn::Model& model) {
  std::vector<std::string> runs;
  for (const nn::Chunk& chunk : model.chunks()) {
    const std::string first = model.block(chunk.first).name();
    const std::string last = model.block(chunk.end - 1).name();
    runs.push_back(first == last ? first : first + " .. " + last);
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

// Of a step that another one precedes and follows, without emptying the pipeline.
double bubble_between_others(const plan::StepSchedule& schedule, const plan::StepTimes& times) {
  const plan::PipelineKind& kind = plan::find_pipeline_kind(schedule.name);
  plan::PipelineShape fewer = schedule.shape;
  --fewer.batches;
  const plan::Timetable all = plan::simulate(schedule, times);
  const plan::Timetable others = plan::simulate(plan::make_step_schedule(kind, fewer), times);
  const double busy = std::ranges::max(all.busy) / schedule.shape.batches;
  return std::max((all.end - others.end) / busy - 1, 0.0);
}

void add_bubble(const plan::StepSchedule& schedule, const plan::StepTimes& times,
                PlannedPipeline& pipeline) {
  if (schedule.shape.batches == 1) {
    pipeline.bubble = pipeline.bubble_alone = plan::simulate(schedule, times).bubble();
    return;
  }
  plan::PipelineShape one = schedule.shape;
  one.batches = 1;
  const plan::PipelineKind& kind = plan::find_pipeline_kind(schedule.name);
  pipeline.bubble_alone = plan::simulate(plan::make_step_schedule(kind, one), times).bubble();
  pipeline.bubble = bubble_between_others(schedule, times);
}

std::string bubble_text(const PlannedPipeline& pipeline) {
  const std::string bubble =
      fmt::format("bubble {:.1f} % of the time that a stage computes", 100 * pipeline.bubble);
  if (pipeline.weight_versions == 1) return bubble;
  return fmt::format(
      "{} ({:.1f} % in a step before and after which the pipeline is empty), {} versions of the "
      "parameters, gradients {} update late",
      bubble, 100 * pipeline.bubble_alone, pipeline.weight_versions, pipeline.staleness);
}

std::string size_text(std::uint64_t bytes) { return format_si(static_cast<double>(bytes), "B"); }

}  // namespace

PlannedPipeline plan_pipeline(const train::TrainOptions& options, const Ops& ops) {
  const plan::StepSchedule schedule = train::step_schedule_of(options);
  const nn::Cut cut = train::cut_of(options);
  const nn::Setup setup = train::setup_of(options);
  const auto micro_batches = static_cast<std::uint64_t>(schedule.shape.micro_batches);
  PlannedPipeline pipeline{
      .schedule = schedule.name, .slices = train::token_slices_of(options), .stages = {}};
  for (int stage = 0; stage < schedule.shape.stages; ++stage) {
    train::TrainOptions of_stage = options;
    of_stage.parallel.stage = stage;
    const nn::Model model = train::model_of(of_stage);
    const nn::MemoryPlan plan = train::plan_run(of_stage, ops);
    PlannedStage planned{
        .blocks = blocks_text(model),
        .bytes = plan.bytes(),
        .flops = cut.flops[static_cast<std::size_t>(stage)] * static_cast<double>(micro_batches),
        .sent = nn::message_bytes(model, setup) * micro_batches,
        .shared = parallel::shared_block_bytes(model, plan)};
    for (const plan::BufferCounts& pool : plan.pools) planned.slots += pool.slots;
    pipeline.stages.push_back(std::move(planned));
  }
  const plan::StepCounts counts = plan::verify(schedule);
  pipeline.messages = counts.messages() / schedule.shape.batches;
  pipeline.weight_versions = schedule.weight_versions;
  pipeline.staleness = counts.staleness;
  add_bubble(schedule, train::step_times_of(options), pipeline);
  const double all = std::accumulate(cut.flops.begin(), cut.flops.end(), 0.0);
  const double mean = all / static_cast<double>(cut.flops.size());
  pipeline.imbalance = std::ranges::max(cut.flops) / mean - 1;
  return pipeline;
}

std::string text(const PlannedPipeline& pipeline) {
  TextTable table("rlrrrrr");
  table.row(
      {"stage", "blocks", "in flight", "memory", "FLOP a step", "sends a step", "of a table"});
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
    const PlannedStage& stage = pipeline.stages[i];
    table.row({fmt::to_string(i), stage.blocks, fmt::to_string(stage.slots), size_text(stage.bytes),
               format_si(stage.flops, "FLOP"), size_text(stage.sent),
               stage.shared == 0 ? "" : size_text(stage.shared)});
  }
  const std::string slices =
      pipeline.slices.empty()
          ? ""
          : fmt::format(" in slices of {} tokens", fmt::join(pipeline.slices, ", "));
  return fmt::format(
      "\npipeline of {} stages, {}{}: {} messages a step, {}; the largest stage computes {:.1f} % "
      "longer than the mean\n{}",
      pipeline.stages.size(), pipeline.schedule, slices,
      format_count(static_cast<std::uint64_t>(pipeline.messages)), bubble_text(pipeline),
      100 * pipeline.imbalance, table.text());
}

nlohmann::ordered_json json_of(const PlannedPipeline& pipeline) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const PlannedStage& stage : pipeline.stages) {
    stages.push_back({{"blocks", stage.blocks},
                      {"in_flight", stage.slots},
                      {"bytes", stage.bytes},
                      {"flops", stage.flops},
                      {"sent", stage.sent},
                      {"shared", stage.shared}});
  }
  return {{"schedule", pipeline.schedule},
          {"slices", pipeline.slices},
          {"stages", stages},
          {"messages", pipeline.messages},
          {"bubble", pipeline.bubble},
          {"bubble_alone", pipeline.bubble_alone},
          {"weight_versions", pipeline.weight_versions},
          {"staleness", pipeline.staleness},
          {"imbalance", pipeline.imbalance}};
}

}  // namespace lockstep::cli
