#include "lockstep/train/shared_data.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>

#include "lockstep/comm/native/threads.h"

namespace lockstep::train {
namespace {

constexpr int kRanks = 3;

TEST(SharedData, IsOpenedByTheLeaderFirst) {
  const StopSignal stop;
  std::atomic<bool> ready = false;
  std::atomic<int> opened = 0;
  int news = 0;
  run_threads(kRanks, [&](Communicator& world) {
    RunGroup group(&world);
    open_shared_dataset(
        group, stop, [&](std::string_view) { ++news; },
        [&](const Tell& tell) {
          EXPECT_EQ(ready, !group.leads());
          for (int i = 0; i < 5; ++i) tell("still busy");
          ready = true;
          ++opened;
          return Dataset();
        });
  });
  EXPECT_EQ(opened, kRanks);
  EXPECT_EQ(news, 5) << "of the leader alone";
}

TEST(SharedData, IsAwaitedByARankThatNeedsNone) {
  const StopSignal stop;
  std::atomic<bool> ready = false;
  run_threads(kRanks, [&](Communicator& world) {
    RunGroup group(&world);
    if (world.rank() == kRanks - 1) {
      await_shared_dataset(group);
      EXPECT_TRUE(ready);
      return;
    }
    open_shared_dataset(
        group, stop, [](std::string_view) {},
        [&](const Tell& tell) {
          for (int i = 0; i < 5; ++i) tell("still busy");
          ready = true;
          return Dataset();
        });
  });
}

TEST(SharedData, EveryWorkerEndsWhereTheRunIsToStop) {
  const StopSignal stop;
  std::atomic<int> ended = 0;
  run_threads(kRanks, [&](Communicator& world) {
    RunGroup group(&world);
    try {
      if (world.rank() == kRanks - 1) return await_shared_dataset(group);
      open_shared_dataset(
          group, stop, [](std::string_view) {},
          [&](const Tell& tell) {
            ::raise(SIGTERM);
            tell("half done");
            return Dataset();
          });
    } catch (const StoppedBeforeTheFirstStep&) {
      ++ended;
    }
  });
  EXPECT_EQ(ended, kRanks);
}

}  // namespace
}  // namespace lockstep::train
