// Ranks of two emulated nodes, as processes, whose communicator is hierarchical: one dies, or does
// not come, and all others name it by its number among all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/launch/rank_report.h"
#include "tests/paths.h"

namespace lockstep::hierarchical {
namespace {

using ::testing::AnyOf;
using testing::eventually;
using ::testing::HasSubstr;
using testing::Launched;
using testing::read_text;

constexpr int kRanks = 4;

Launched start_levels(const std::string& how, const std::string& timeout) {
  return Launched({"-n", std::to_string(kRanks), "--grace", "5s", "--",
                   in_build("tests/rank_program"), "levels", how},
                  {"LOCKSTEP_COMM_EMULATED_NODES=2", "LOCKSTEP_COMM_TIMEOUT=" + timeout,
                   "LOCKSTEP_COMM_MEASURE=false"});
}

std::optional<testing::RankReport> level_report(const Launched& job, int rank) {
  return testing::report_of(job, rank, std::chrono::seconds(60));
}

TEST(LevelRanks, NameARankThatIsKilled) {
  for (int victim = 0; victim < kRanks; ++victim) {
    Launched job = start_levels("loop", "60s");
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(eventually([&] { return job.has_file("running-" + std::to_string(rank)); }))
          << job.err();
    }
    ::kill(std::stoi(read_text(job.folder() / ("running-" + std::to_string(victim)))), SIGKILL);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      const auto report = level_report(job, rank);
      ASSERT_TRUE(report) << "rank " << rank << " noticed nothing: " << job.err();
      EXPECT_EQ(report->code, ErrorCode::kPeerLost) << report->message;
      EXPECT_EQ(report->ranks, std::to_string(victim)) << report->message;
    }
    EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.err();
    EXPECT_TRUE(job.leaves_nobody());
  }
}

TEST(LevelRanks, NameRanksThatDoNotCome) {
  Launched job = start_levels("away", "5s");
  for (const int rank : {0, 3}) {
    const auto report = level_report(job, rank);
    ASSERT_TRUE(report) << job.err();
    EXPECT_THAT(report->code, AnyOf(ErrorCode::kTimeout, ErrorCode::kAborted)) << report->message;
    EXPECT_THAT(report->message, HasSubstr("ranks 1 and 2"));
  }
  EXPECT_NE(job.wait(), 0);
  EXPECT_TRUE(job.leaves_nobody());
}

}  // namespace
}  // namespace lockstep::hierarchical
