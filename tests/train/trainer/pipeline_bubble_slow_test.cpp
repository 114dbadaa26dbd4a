// The bubble of pipelines that run, from their traces: stages exchange their messages and wait
// instead of computing, and the trace has the bubble that the simulation says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/nn/pipeline_axis.h"
#include "lockstep/ops/ops.h"
#include "lockstep/parallel/late_update.h"
#include "lockstep/plan/pipeline/timetable.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/observe/pipeline_bubble.h"
#include "lockstep/train/observe/trace_file.h"
#include "lockstep/train/trainer/stage_run.h"

namespace lockstep::train {
namespace {

constexpr int kStages = 4;
constexpr int kMicroBatches = 8;
// Seconds of a micro-batch on a stage; much longer than what messages and wake-ups take.
const plan::StepTimes kTimes{.forward = 0.03, .backward_input = 0.03, .backward_weight = 0.03};

TrainOptions bubble_options(const std::string& schedule, int stage) {
  TrainOptions options;
  options.model = {.family = ModelFamily::kLlama,
                   .layers = 8,
                   .hidden = 16,
                   .heads = 2,
                   .vocabulary = 32,
                   .positions = 8};
  options.batch = {.sequence = 8, .micro = 1, .accumulation = kMicroBatches};
  options.precision = plan::Precision::kF32;
  options.threads = 1;
  options.parallel.pipeline = kStages;
  options.parallel.pipeline_schedule = schedule;
  options.parallel.stage = stage;
  return options;
}

// The bubble of the best of some steps, from the trace of all stages as a run writes it. Other
// programs can only lengthen a step.
double measured_bubble(const std::string& schedule) {
  constexpr int kSteps = 4;
  const ScratchFolder folder;
  std::vector<std::string> events(kStages);
  run_threads(kStages, [&](Communicator& world) {
    const TrainOptions options = bubble_options(schedule, world.rank());
    const auto ops = make_reference_ops();
    nn::PipelineAxis axis(world);
    nn::Replica replica(model_of(options), plan_run(options, *ops), *ops);
    replica.set_pipeline_axis(&axis);
    const plan::StepSchedule steps = step_schedule_of(options);
    StageRun run(replica, steps);
    parallel::Trace trace;
    trace.keep(kSteps);
    for (int step = 1; step <= kSteps; ++step) {
      world.barrier();
      trace.begin_step(step);
      run.step(kMicroBatches, trace, [&](const StageRun::Computation& computation) {
        const bool weights = computation.action.kind == plan::ActionKind::kBackwardWeight;
        const parallel::TraceScope scope(trace, {.lane = parallel::TraceLane::kCompute,
                                                 .kind = computation.is_forward() ? "forward"
                                                         : weights                ? "weights"
                                                                                  : "backward",
                                                 .of = "micro-batch",
                                                 .index = computation.action.micro_batch});
        std::this_thread::sleep_for(
            std::chrono::duration<double>(kTimes.of(steps.shape, computation.action)));
      });
      world.barrier();
    }
    events[static_cast<std::size_t>(world.rank())] = trace_events(world.rank(), trace.spans(), 0);
  });
  write_trace(trace_path(folder.path()), events);
  const auto bubbles = pipeline_bubbles(read_trace(trace_path(folder.path())));
  EXPECT_EQ(bubbles.size(), static_cast<std::size_t>(kSteps)) << schedule;
  double least = 1e9;
  for (const auto& [step, bubble] : bubbles) least = std::min(least, bubble);
  return least;
}

TEST(PipelineBubble, IsThatOfTheSimulationInTheTrace) {
  for (const std::string schedule :
       {"sequential", "gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2"}) {
    const double simulated =
        simulate(step_schedule_of(bubble_options(schedule, 0)), kTimes).bubble();
    const double measured = measured_bubble(schedule);
    RecordProperty(schedule + "_bubble", std::to_string(measured));
    // Of a step, not of the bubble: that of the zb schedules is small.
    EXPECT_NEAR(1 + measured, 1 + simulated, 0.1 * (1 + simulated)) << schedule;
  }
}

struct StreamBubble {
  double between = 0;  // of the best step that others precede and follow
  double all = 0;      // of all steps, from the first forward to the last backward
};

// PipeDream-2BW over some steps, with the agreement on the norm of every step by real messages.
StreamBubble measured_stream(int steps) {
  const ScratchFolder folder;
  std::vector<std::string> events(kStages);
  std::vector<double> seconds(kStages);
  run_threads(kStages, [&](Communicator& world) {
    const TrainOptions options = bubble_options("pipedream_2bw", world.rank());
    const auto ops = make_cpu_ops(1);
    nn::PipelineAxis axis(world);
    const auto late = world.split(0, world.rank());
    nn::PipelineAxis late_axis(*late);
    nn::Replica replica(model_of(options), plan_run(options, *ops), *ops);
    replica.set_pipeline_axis(&axis);
    replica.initialise(1);
    replica.keep_version();
    const plan::StepSchedule schedule = step_schedule_of(options);
    StageRun run(replica, schedule);
    parallel::Trace trace;
    trace.keep(steps);
    parallel::LateUpdate update;
    update.start(replica, {.pipeline = &late_axis}, trace);
    world.barrier();
    const auto begin = SteadyClock::now();
    for (int step = 1; step <= steps; ++step) {
      trace.begin_step(step);
      const auto compute = [&](const StageRun::Computation& computation) {
        const parallel::TraceScope scope(trace,
                                         {.lane = parallel::TraceLane::kCompute,
                                          .kind = computation.is_forward() ? "forward" : "backward",
                                          .of = "micro-batch",
                                          .index = computation.action.micro_batch});
        std::this_thread::sleep_for(
            std::chrono::duration<double>(kTimes.of(schedule.shape, computation.action)));
      };
      run.step_of_stream(trace, compute, [&] {
        if (update.under_way())
          update.update({.optimizer = {}, .rate = 0.1}, update.agree().result.gradient_norm);
        return step < steps;
      });
      update.begin(false, {});
    }
    seconds[static_cast<std::size_t>(world.rank())] = seconds_since(begin);
    update.agree();
    events[static_cast<std::size_t>(world.rank())] = trace_events(world.rank(), trace.spans(), 0);
  });
  write_trace(trace_path(folder.path()), events);
  StreamBubble bubble{.between = 1e9};
  for (const auto& [step, of_step] : pipeline_bubbles(read_trace(trace_path(folder.path())))) {
    if (step > 1 && step < steps) bubble.between = std::min(bubble.between, of_step);
  }
  const double busy =
      steps * kMicroBatches * (kTimes.forward + kTimes.backward_input + kTimes.backward_weight);
  bubble.all = std::ranges::max(seconds) / busy - 1;
  return bubble;
}

// (p - 1)/(m b) over b steps: the pipeline fills and empties once, and a step between others has no
// bubble, although all stages agree on the norm of each.
TEST(PipelineBubble, OfPipeDreamIsThatOfFillingAndEmptyingOnce) {
  constexpr int kSteps = 6;
  const double one_f_one_b = measured_bubble("1f1b");
  const StreamBubble late = measured_stream(kSteps);
  fmt::print(
      "4 stages, 8 micro-batches: 1f1b {:.1f} %, pipedream_2bw {:.1f} % in a step between others, "
      "{:.1f} % over {} steps\n",
      100 * one_f_one_b, 100 * late.between, 100 * late.all, kSteps);
  constexpr double kOverAll = static_cast<double>(kStages - 1) / (kMicroBatches * kSteps);
  EXPECT_LE(late.between, one_f_one_b / 5);
  EXPECT_NEAR(1 + late.all, 1 + kOverAll, 0.1 * (1 + kOverAll));
}

// (p - 1)/m and (p - 1)/(v m), and half of the first where weight gradients fill the waiting.
TEST(PipelineBubble, FollowsTheFormulasInTheTrace) {
  constexpr double kFormula = static_cast<double>(kStages - 1) / kMicroBatches;
  const double one_f_one_b = measured_bubble("1f1b");
  EXPECT_NEAR(one_f_one_b, kFormula, 0.1 * kFormula);
  EXPECT_NEAR(measured_bubble("gpipe"), kFormula, 0.1 * kFormula);
  EXPECT_NEAR(measured_bubble("interleaved"), kFormula / 2, 0.1 * kFormula / 2);
  EXPECT_LE(measured_bubble("zb_h1"), one_f_one_b / 2);
}

// FLOPs of layers, and what a slice costs besides: products of few rows are slow.
double slice_cost(const TrainOptions& options, double length, double context) {
  const plan::TokenFlops flops = plan::count_flops(shape_of(options), 1);
  return flops.layers * (length + 32) + flops.attention * length * (context + length / 2);
}

// Seconds of a step of one long sequence through 4 stages, each of which would take a quarter of a
// second for all of it.
double step_of_one_sequence(const std::string& schedule, int slices = 0) {
  constexpr double kSecondsOfAStage = 0.25;
  constexpr int kLong = 1024;
  double seconds = 1e9;
  run_threads(kStages, [&](Communicator& world) {
    TrainOptions options = bubble_options(schedule, world.rank());
    options.model.positions = options.batch.sequence = kLong;
    options.batch.accumulation = 1;
    options.parallel.pipeline_slices = slices;
    const auto ops = make_reference_ops();
    nn::PipelineAxis axis(world);
    nn::Replica replica(model_of(options), plan_run(options, *ops), *ops);
    replica.set_pipeline_axis(&axis);
    std::vector<std::int64_t> lengths = token_slices_of(options);
    if (lengths.empty()) lengths = {kLong};
    const double whole = slice_cost(options, kLong, 0);
    StageRun run(replica, step_schedule_of(options));
    parallel::Trace trace;
    for (int repetition = 0; repetition < 3; ++repetition) {
      world.barrier();
      const auto begin = SteadyClock::now();
      run.step(1, trace, [&](const StageRun::Computation& computation) {
        const auto slice = static_cast<std::size_t>(computation.action.slice);
        const double context = static_cast<double>(std::accumulate(
            lengths.begin(), lengths.begin() + computation.action.slice, std::int64_t{0}));
        const double part =
            slice_cost(options, static_cast<double>(lengths[slice]), context) / whole;
        const double share = computation.is_forward() ? 1.0 / 3 : 2.0 / 3;
        std::this_thread::sleep_for(std::chrono::duration<double>(kSecondsOfAStage * part * share));
      });
      world.barrier();
      if (world.rank() == 0) seconds = std::min(seconds, seconds_since(begin));
    }
  });
  return seconds;
}

TEST(TeraPipe, TakesOneLongSequenceThroughStagesFasterThanGPipe) {
  const double gpipe = step_of_one_sequence("gpipe");
  const double best = step_of_one_sequence("terapipe");
  const double uniform = step_of_one_sequence("terapipe", 4);
  fmt::print(
      "4 stages, 1,024 tokens: gpipe {:.3f} s, 4 equal slices {:.3f} s, best slices {:.3f} s\n",
      gpipe, uniform, best);
  EXPECT_GE(gpipe, 1.3 * best);
  EXPECT_GE(gpipe, 1.3 * uniform);
  EXPECT_LE(best, 1.05 * uniform);
}

}  // namespace
}  // namespace lockstep::train
