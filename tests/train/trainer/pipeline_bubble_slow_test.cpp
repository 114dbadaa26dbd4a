// The bubble of pipelines that run: stages exchange their messages and wait instead of computing,
// and take the time that the simulation says.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "lockstep/base/system/clock.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/nn/pipeline_axis.h"
#include "lockstep/ops/ops.h"
#include "lockstep/plan/pipeline/timetable.h"
#include "lockstep/train/memory/run_plan.h"
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

// Seconds of a step of all stages together.
double measured_step(const std::string& schedule) {
  double seconds = 0;
  run_threads(kStages, [&](Communicator& world) {
    const TrainOptions options = bubble_options(schedule, world.rank());
    const auto ops = make_reference_ops();
    nn::PipelineAxis axis(world);
    nn::Replica replica(model_of(options), plan_run(options, *ops), *ops);
    replica.set_pipeline_axis(&axis);
    const plan::StepSchedule steps = step_schedule_of(options);
    StageRun run(replica, steps);
    parallel::Trace trace;
    for (int repetition = 0; repetition < 2; ++repetition) {  // the first one starts threads
      world.barrier();
      const auto begin = SteadyClock::now();
      run.step(kMicroBatches, trace, [&](const StageRun::Computation& computation) {
        std::this_thread::sleep_for(
            std::chrono::duration<double>(kTimes.of(steps.shape, computation.action)));
      });
      world.barrier();
      if (world.rank() == 0) seconds = seconds_since(begin);
    }
  });
  return seconds;
}

TEST(PipelineBubble, IsThatOfTheSimulation) {
  const double busy =
      kMicroBatches * (kTimes.forward + kTimes.backward_input + kTimes.backward_weight);
  for (const std::string schedule :
       {"sequential", "gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2"}) {
    const double simulated = simulate(step_schedule_of(bubble_options(schedule, 0)), kTimes).end;
    const double measured = measured_step(schedule);
    RecordProperty(schedule + "_bubble", std::to_string(measured / busy - 1));
    EXPECT_GE(measured, 0.99 * simulated) << schedule;
    EXPECT_LE(measured, 1.1 * simulated)
        << schedule << ": bubble " << measured / busy - 1 << ", simulated " << simulated / busy - 1;
  }
}

}  // namespace
}  // namespace lockstep::train
