#include "lockstep/train/dataset/shared_data.h"

#include <fmt/format.h>
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
        group, &stop, [&](std::string_view) { ++news; },
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
      await_shared_dataset(group, &stop);
      EXPECT_TRUE(ready);
      return;
    }
    open_shared_dataset(
        group, &stop, [](std::string_view) {},
        [&](const Tell& tell) {
          for (int i = 0; i < 5; ++i) tell("still busy");
          ready = true;
          return Dataset();
        });
  });
}

// Every rank opens the data but the last, which waits for the others'.
template <class Open>
void open_or_await(RunGroup& group, const StopSignal& stop, Open&& open) {
  if (group.rank() == kRanks - 1) return await_shared_dataset(group, &stop);
  open_shared_dataset(
      group, &stop, [](std::string_view) {}, open);
}

TEST(SharedData, EveryWorkerEndsWhereTheRunIsToStop) {
  const StopSignal stop;
  std::atomic<int> ended = 0;
  run_threads(kRanks, [&](Communicator& world) {
    RunGroup group(&world);
    try {
      open_or_await(group, stop, [&](const Tell& tell) {
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

// All waiting ranks learn which rank could not open it and why; so does a rank that needs no data.
TEST(SharedData, EveryRankHearsWhoCannotOpenItAndWhy) {
  const StopSignal stop;
  for (int bad = 0; bad < kRanks - 1; ++bad) {
    std::atomic<int> heard = 0;
    run_threads(kRanks, [&](Communicator& world) {
      RunGroup group(&world);
      try {
        open_or_await(group, stop, [&](const Tell& tell) {
          tell("half done");
          if (world.rank() == bad) fail(ErrorCode::kInvalidArgument, "no such text");
          return Dataset();
        });
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_EQ(error.what(), fmt::format("rank {}: no such text", bad));
        ++heard;
      }
      group.barrier();  // they are together still
    });
    EXPECT_EQ(heard, kRanks);
  }
}

// A leader whose peers are gone sends no message.
TEST(SharedData, IsNotSpokenOfToRanksThatAreGone) {
  const StopSignal stop;
  std::atomic<int> lost = 0;
  EXPECT_THROW(run_threads(kRanks,
                           [&](Communicator& world) {
                             RunGroup group(&world);
                             if (world.rank() == 1) fail(ErrorCode::kSystem, "gone");
                             try {
                               open_shared_dataset(
                                   group, &stop, [](std::string_view) {},
                                   [&](const Tell& tell) {
                                     for (int i = 0; i < 1000; ++i) tell("still busy");
                                     return Dataset();
                                   });
                             } catch (const Error& error) {
                               EXPECT_TRUE(is_of_ranks(error.code())) << error.what();
                               ++lost;
                               throw;
                             }
                           }),
               Error);
  EXPECT_EQ(lost, kRanks - 1);
}

}  // namespace
}  // namespace lockstep::train
