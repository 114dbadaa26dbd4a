// All of a step is compute or exposed, its agreements included.
#include "lockstep/parallel/strategy/step_waits.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "lockstep/comm/native/threads.h"
#include "lockstep/parallel/strategy/agreement.h"

namespace lockstep::parallel::step_waits_test {
namespace {

void pass(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST(StepWaits, CountWaitsInsideComputeAndTheAgreementToBegin) {
  StepWaits waits;
  waits.add(100);  // of an earlier step
  waits.begin_with([] {
    pass(0.02);
    return 0;
  });
  waits.add(2);
  waits.during([] {
    pass(0.01);
    return 0;
  });
  const StepCost cost = waits.cost_of({.compute_seconds = 5, .communication_seconds = 3});
  EXPECT_GE(cost.exposed_seconds, 2.03);
  EXPECT_LT(cost.exposed_seconds, 100);
  EXPECT_LE(cost.compute_seconds, 2.99);
  EXPECT_GE(cost.communication_seconds, 3.03) << "the agreement and the exchange are communication";
  EXPECT_GE(cost.communication_seconds, cost.exposed_seconds);
}

TEST(StepWaits, AddTheAgreementToEndToEverybodysReport) {
  StepWaits waits;
  waits.begin_with([] { return 0; });
  StepCost reports[] = {waits.cost_of({}), waits.cost_of({})};
  reports[1].elapsed_seconds = 1e9;  // the last to arrive waits for no other
  pass(0.02);
  waits.add_agreement_to_end(reports);
  EXPECT_GE(reports[0].exposed_seconds, 0.02);
  EXPECT_GE(reports[0].communication_seconds, reports[0].exposed_seconds);
  EXPECT_LT(reports[1].exposed_seconds, 0.02);
}

TEST(StepWaits, LeaveOutWhatOthersWaitedForBeforeTheStep) {
  StepWaits waits;
  waits.begin_with([] { return 0; });
  pass(0.02);
  StepCost early = waits.cost_of({.compute_seconds = 0.015, .communication_seconds = 60});
  early.exposed_seconds = 60;  // in which this worker wrote a checkpoint
  waits.add_agreement_to_end({&early, 1});
  EXPECT_LT(early.exposed_seconds, 30);
  EXPECT_GE(early.exposed_seconds, 0.005);
  EXPECT_GE(early.communication_seconds, early.exposed_seconds);
}

// Nothing is faster than the delay of a link, and a step crosses it twice before it reduces
// anything. A worker that arrives late at an agreement waits less there, and the other one as much
// longer.
TEST(Agreement, IsExposedTwiceAStep) {
  constexpr double kDelay = 0.05;
  constexpr int kRanks = 2;
  CommOptions options;
  options.emulate = "1Gbit,50ms";
  options.cache_dir.clear();
  std::mutex mutex;
  double exposed = 0;  // each rank's own
  run_threads(
      kRanks,
      [&](Communicator& world) {
        StepWaits waits;
        agree_to_begin(world, {.targets = 1, .tokens = 1}, waits);
        const StepSummary summary = agree_to_end(world, {.losses = {1}, .cost = {}}, {}, waits, 1);
        ASSERT_EQ(summary.costs.size(), std::size_t{kRanks});
        for (const StepCost& cost : summary.costs) {
          EXPECT_GE(cost.communication_seconds, cost.exposed_seconds);
        }
        const std::lock_guard lock(mutex);
        exposed += summary.costs[static_cast<std::size_t>(world.rank())].exposed_seconds;
      },
      options);
  EXPECT_GE(exposed, 0.95 * kRanks * 2 * kDelay);
}

}  // namespace
}  // namespace lockstep::parallel::step_waits_test
