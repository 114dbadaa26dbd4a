// Never a hang, never a wrong sum: real ranks are killed, stopped and made to disagree.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <random>
#include <sstream>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "tests/launch/launched.h"

namespace lockstep {
namespace {

using testing::eventually;
using testing::Launched;
using testing::read_text;

constexpr int kRanks = 4;

struct Report {
  ErrorCode code = ErrorCode::kSystem;
  std::string ranks;
  std::chrono::nanoseconds when{};
  std::string message;
};

class Failure : public ::testing::TestWithParam<const char*> {
 protected:
  static Launched start(std::vector<std::string> program, const std::string& timeout = "60s") {
    std::vector<std::string> arguments = {"-n", std::to_string(kRanks), "--",
                                          std::string(LOCKSTEP_BINARY_DIR) + "/tests/rank_program"};
    arguments.insert(arguments.end(), program.begin(), program.end());
    return Launched(arguments, {std::string("LOCKSTEP_COMM_TRANSPORT=") + GetParam(),
                                "LOCKSTEP_COMM_TIMEOUT=" + timeout, "LOCKSTEP_COMM_MEASURE=false"});
  }

  static std::optional<Report> report_of(const Launched& job, int rank) {
    const std::string name = "error-" + std::to_string(rank);
    if (!eventually([&] { return job.has_file(name); }, std::chrono::seconds(30))) {
      return std::nullopt;
    }
    std::istringstream text(read_text(job.folder() / name));
    Report report;
    int code = 0;
    std::int64_t nanoseconds = 0;
    text >> code >> report.ranks >> nanoseconds;
    std::getline(text >> std::ws, report.message);
    report.code = static_cast<ErrorCode>(code);
    report.when = std::chrono::nanoseconds(nanoseconds);
    return report;
  }

  static std::size_t shared_memory_files() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      ++count;
    return count;
  }
};

TEST_P(Failure, EverySurvivorNamesAKilledRankWithinASecond) {
  std::mt19937 random(17);
  const std::size_t before = shared_memory_files();
  for (int attempt = 0; attempt < 25; ++attempt) {
    Launched job = start({"loop"});
    const int victim = static_cast<int>(random() % kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(eventually([&] { return job.has_file("running-" + std::to_string(rank)); }))
          << job.err();
    }
    // A random moment of a random operation.
    const auto moment = SteadyClock::now() + std::chrono::microseconds(random() % 20'000);
    while (SteadyClock::now() < moment) cpu_relax();
    const std::chrono::nanoseconds killed = SteadyClock::now().time_since_epoch();
    ::kill(std::stoi(read_text(job.folder() / ("running-" + std::to_string(victim)))), SIGKILL);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      const auto report = report_of(job, rank);
      ASSERT_TRUE(report) << "rank " << rank << " noticed nothing: " << job.err();
      EXPECT_EQ(report->code, ErrorCode::kPeerLost) << report->message;
      EXPECT_EQ(report->ranks, std::to_string(victim)) << report->message;
      EXPECT_LT(report->when - killed, std::chrono::seconds(1)) << report->message;
    }
    EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.err();
    EXPECT_TRUE(job.leaves_nobody());
    EXPECT_NE(job.err().find("rank " + std::to_string(victim)), std::string::npos) << job.err();
  }
  EXPECT_EQ(shared_memory_files(), before);
}

TEST_P(Failure, RanksThatDisagreeAreToldWhoCalledWhat) {
  for (const std::string how :
       {"count", "dtype", "operation", "root", "collective", "allocation", "message"}) {
    Launched job = start({"disagree", how}, "20s");
    const int involved = how == "message" ? 2 : kRanks;
    for (int rank = 0; rank < involved; ++rank) {
      const auto report = report_of(job, rank);
      ASSERT_TRUE(report) << how << ": rank " << rank << " noticed nothing: " << job.err();
      EXPECT_EQ(report->code, ErrorCode::kMismatch) << how << ": " << report->message;
      EXPECT_NE(report->message.find("disagree"), std::string::npos) << report->message;
    }
    EXPECT_NE(job.wait(), 0);
  }
}

TEST_P(Failure, AStoppedRankIsNamedAtTheDeadline) {
  Launched job = start({"stop"}, "2s");
  for (int rank : {0, 2, 3}) {
    const auto report = report_of(job, rank);
    ASSERT_TRUE(report) << job.err();
    EXPECT_EQ(report->code, ErrorCode::kTimeout) << report->message;
    EXPECT_EQ(report->ranks, "1") << report->message;
    EXPECT_NE(report->message.find("barrier"), std::string::npos) << report->message;
  }
  EXPECT_NE(job.wait(), 0);
  EXPECT_TRUE(job.leaves_nobody());
}

TEST_P(Failure, AbortReachesEveryRankWithItsReason) {
  Launched job = start({"abort"});
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto report = report_of(job, rank);
    ASSERT_TRUE(report) << job.err();
    EXPECT_EQ(report->code, ErrorCode::kAborted);
    EXPECT_EQ(report->message, "rank 1 aborted: the disk is full");
  }
  EXPECT_NE(job.wait(), 0);
}

TEST_P(Failure, ARankThatLeftIsNamed) {
  Launched job = start({"leave"});
  for (int rank : {0, 2, 3}) {
    const auto report = report_of(job, rank);
    ASSERT_TRUE(report) << job.err();
    EXPECT_EQ(report->code, ErrorCode::kPeerLost) << report->message;
    EXPECT_EQ(report->ranks, "1") << report->message;
  }
  EXPECT_NE(job.wait(), 0);
}

// Every rank takes itself for the root, so nobody waits for anybody; whoever closes last sees it.
TEST_P(Failure, ADisagreementInTheLastOperationIsToldAtTheEnd) {
  if (std::string_view(GetParam()) != "shm") GTEST_SKIP() << "over TCP nobody asks the others";
  Launched job = start({"last"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_NE(job.err().find("ranks disagree"), std::string::npos) << job.err();
}

INSTANTIATE_TEST_SUITE_P(Transports, Failure, ::testing::Values("shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace lockstep
