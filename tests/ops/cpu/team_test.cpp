#include "lockstep/ops/cpu/team/team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/launch/launched.h"

namespace lockstep::cpu {
namespace {

TEST(ThreadTeam, CallsEveryThreadOnceAndWaitsForAll) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadTeam team(threads);
    std::vector<int> calls(static_cast<std::size_t>(threads));
    constexpr int kRounds = 200;
    for (int round = 0; round < kRounds; ++round) {
      team.run([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
      for (const int count : calls) ASSERT_EQ(count, round + 1);
    }
  }
}

TEST(ThreadTeam, TheFirstThreadIsTheCaller) {
  ThreadTeam team(3);
  std::vector<std::thread::id> ids(3);
  team.run([&](int thread) { ids[static_cast<std::size_t>(thread)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[0]);
  EXPECT_NE(ids[2], ids[1]);
}

// Whether the kernel has a thread of this process waiting, rather than running.
bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text.at(name_end + 2) == 'S';
}

TEST(ThreadTeam, GoesOnAfterItsThreadsHaveFallenAsleep) {
  ThreadTeam team(2);
  pid_t other = 0;
  int calls = 0;
  for (int round = 1; round <= 3; ++round) {
    team.run([&](int thread) {
      if (thread == 0) return;
      other = ::gettid();
      ++calls;
    });
    EXPECT_EQ(calls, round);
    ASSERT_TRUE(testing::eventually([&] { return is_asleep(other); }));
  }
}

TEST(ThreadTeam, RethrowsTheErrorOfTheLowestThreadAndTakesNewWork) {
  ThreadTeam team(4);
  const auto fail_from_two_on = [](int thread) {
    if (thread >= 2) throw std::runtime_error(std::to_string(thread));
  };
  try {
    team.run(fail_from_two_on);
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "2");
  }
  EXPECT_NO_THROW(team.run([](int) {}));
}

TEST(ThreadTeam, NeedsAThread) { EXPECT_THROW(ThreadTeam(0), Error); }

TEST(Share, CoversEverythingInOrderInWholeGrains) {
  for (const std::size_t count : {0u, 1u, 7u, 64u, 1000u}) {
    for (const std::size_t grain : {1u, 4u, 16u}) {
      for (const int parts : {1, 2, 3, 8}) {
        std::size_t next = 0;
        for (int part = 0; part < parts; ++part) {
          const Range range = share(count, parts, part, grain);
          EXPECT_EQ(range.begin, next);
          EXPECT_LE(range.begin, range.end);
          if (range.end < count) {
            EXPECT_EQ(range.end % grain, 0u);
          }
          next = range.end;
        }
        EXPECT_EQ(next, count);
      }
    }
  }
}

TEST(Share, PartsDifferByAtMostAGrain) {
  for (int part = 0; part < 3; ++part) {
    const std::size_t size = share(100, 3, part, 4).size();
    EXPECT_GE(size, 32u);
    EXPECT_LE(size, 36u);
  }
}

}  // namespace
}  // namespace lockstep::cpu
