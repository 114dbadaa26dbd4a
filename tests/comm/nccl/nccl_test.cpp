// What the conformance suite does not ask of NCCL's communicator: the order of sums, the order of
// streams, ranks that disagree, stay away or die, memory. Ranks are processes that share one GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "tests/launch/rank_report.h"
#include "tests/paths.h"
#include "tests/tensor/cuda/gpu.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::eventually;
using ::testing::HasSubstr;
using testing::Launched;
using testing::read_text;

constexpr std::chrono::seconds kEnough(120);

Launched start_ranks(int ranks, std::vector<std::string> program,
                     std::vector<std::string> environment = {}) {
  std::vector<std::string> arguments = {
      "-n", std::to_string(ranks), "--grace", "20s", "--", in_build("tests/nccl_rank_program")};
  arguments.insert(arguments.end(), program.begin(), program.end());
  environment.emplace_back("LOCKSTEP_COMM_MEASURE=false");
  return Launched(arguments, environment);
}

std::optional<testing::RankReport> report_of(const Launched& job, int rank) {
  return testing::report_of(job, rank, kEnough);
}

// Of a job whose rank 1 does not come.
void expect_rank_1_is_named(Launched& job, std::initializer_list<int> others) {
  for (const int rank : others) {
    const auto report = report_of(job, rank);
    ASSERT_TRUE(report) << job.err();
    EXPECT_THAT(report->message, HasSubstr("rank 1")) << rank;
    EXPECT_THAT(report->code, AnyOf(ErrorCode::kTimeout, ErrorCode::kAborted)) << report->message;
  }
  EXPECT_NE(job.wait(kEnough), 0);
  EXPECT_TRUE(job.leaves_nobody());
}

class NcclRanks : public testing::OnGpu<::testing::Test> {
 protected:
  static void expect_success(int ranks, const std::string& task) {
    Launched job = start_ranks(ranks, {task});
    EXPECT_EQ(job.wait(kEnough), 0) << task << " on " << ranks << " ranks: " << job.err();
    EXPECT_TRUE(job.leaves_nobody());
  }
};

TEST_F(NcclRanks, SumInTheOrderOfABalancedTree) {
  for (int ranks : {2, 3, 4}) expect_success(ranks, "sum");
}

TEST_F(NcclRanks, KeepNaNInMinimaAndMaxima) { expect_success(2, "extremes"); }

TEST_F(NcclRanks, CallInTheOrderOfStreams) { expect_success(3, "streams"); }

TEST_F(NcclRanks, RefuseCaptures) { expect_success(2, "capture"); }

TEST_F(NcclRanks, GiveMemoryBack) { expect_success(4, "often"); }

TEST_F(NcclRanks, ThatDisagreeNameBothCalls) {
  const std::pair<const char*, ::testing::Matcher<std::string>> cases[] = {
      {"count", AllOf(HasSubstr("all_reduce of 500000"), HasSubstr("all_reduce of 600000"))},
      {"operation", AllOf(HasSubstr("10 f32, max"), HasSubstr("10 f32, sum"))},
      {"root", AllOf(HasSubstr("root 0"), HasSubstr("root 1"))},
      {"collective", AllOf(HasSubstr("barrier"), HasSubstr("all_reduce of 10"))},
      {"allocation", AllOf(HasSubstr("4096 bytes"), HasSubstr("8192 bytes"))},
      {"blocks", HasSubstr("rank 0 sends 5 elements to rank 1, which expects 6")},
      {"stream", AllOf(HasSubstr("all_reduce of 11"), HasSubstr("all_reduce of 12"))},
  };
  for (const auto& [how, expected] : cases) {
    Launched job = start_ranks(3, {"disagree", how});
    for (int rank = 0; rank < 3; ++rank) {
      const auto report = report_of(job, rank);
      ASSERT_TRUE(report) << how << ", rank " << rank << ": " << job.err();
      EXPECT_EQ(report->code, ErrorCode::kMismatch) << how << ": " << report->message;
      EXPECT_THAT(report->message, expected) << how;
    }
    EXPECT_EQ(job.wait(kEnough), 3) << job.err();
    EXPECT_TRUE(job.leaves_nobody());
  }
}

TEST_F(NcclRanks, NameARankThatDoesNotCome) {
  Launched job = start_ranks(3, {"away"}, {"LOCKSTEP_COMM_TIMEOUT=15s"});
  expect_rank_1_is_named(job, {0, 2});
}

TEST_F(NcclRanks, NameARankWhoseGpuDoesNotCome) {
  Launched job = start_ranks(2, {"busy"});
  const auto report = report_of(job, 0);
  ASSERT_TRUE(report) << job.err();
  EXPECT_EQ(report->code, ErrorCode::kTimeout) << report->message;
  EXPECT_EQ(report->ranks, "1") << report->message;
  EXPECT_NE(job.wait(kEnough), 0);
  EXPECT_TRUE(job.leaves_nobody());
}

TEST_F(NcclRanks, NameARankThatDies) {
  constexpr int kRanks = 4;
  for (int victim : {0, 1, 3}) {
    Launched job = start_ranks(kRanks, {"loop"});
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(
          eventually([&] { return job.has_file("running-" + std::to_string(rank)); }, kEnough))
          << job.err();
    }
    const std::chrono::nanoseconds killed = SteadyClock::now().time_since_epoch();
    ::kill(std::stoi(read_text(job.folder() / ("running-" + std::to_string(victim)))), SIGKILL);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      const auto report = report_of(job, rank);
      ASSERT_TRUE(report) << "rank " << rank << " noticed nothing: " << job.err();
      EXPECT_EQ(report->code, ErrorCode::kPeerLost) << report->message;
      EXPECT_EQ(report->ranks, std::to_string(victim)) << report->message;
      const double seconds = std::chrono::duration<double>(report->when - killed).count();
      std::printf("rank %d named rank %d after %.3f s\n", rank, victim, seconds);
      EXPECT_LT(seconds, 5) << report->message;
    }
    EXPECT_EQ(job.wait(kEnough), 128 + SIGKILL) << job.err();
    EXPECT_TRUE(job.leaves_nobody());
  }
}

TEST_F(NcclRanks, GetTheReasonOfAnAbort) {
  Launched job = start_ranks(3, {"abort"});
  for (int rank = 0; rank < 3; ++rank) {
    const auto report = report_of(job, rank);
    ASSERT_TRUE(report) << job.err();
    EXPECT_EQ(report->code, ErrorCode::kAborted) << report->message;
    EXPECT_THAT(report->message, HasSubstr("the disk is full"));
  }
  EXPECT_NE(job.wait(kEnough), 0);
  EXPECT_TRUE(job.leaves_nobody());
}

// Four ranks on two emulated nodes: kernels inside, NCCL across.
class LevelsOnGpu : public NcclRanks {
 protected:
  static Launched start_on_nodes(const std::vector<std::string>& program,
                                 std::vector<std::string> environment = {}) {
    environment.emplace_back("LOCKSTEP_COMM_EMULATED_NODES=2");
    environment.emplace_back("LOCKSTEP_COMM_DEVICE_BACKEND=hierarchical");
    return start_ranks(4, program, environment);
  }
  static void expect_success_on_nodes(const std::string& task) {
    Launched job = start_on_nodes({task});
    EXPECT_EQ(job.wait(kEnough), 0) << job.err();
  }
};

TEST_F(LevelsOnGpu, SumInTheOrderOfATree) { expect_success_on_nodes("sum"); }

TEST_F(LevelsOnGpu, SumSymmetricMemoryInPlace) { expect_success_on_nodes("symmetric"); }

TEST_F(LevelsOnGpu, KeepNanInExtremes) { expect_success_on_nodes("extremes"); }

TEST_F(LevelsOnGpu, KeepTheOrderOfStreams) { expect_success_on_nodes("streams"); }

TEST_F(LevelsOnGpu, RefuseCaptures) { expect_success_on_nodes("capture"); }

TEST_F(LevelsOnGpu, TakeThePlannedBytes) { expect_success_on_nodes("bytes"); }

TEST_F(LevelsOnGpu, GiveMemoryBack) { expect_success_on_nodes("often"); }

TEST_F(LevelsOnGpu, NameBothCallsOfRanksThatDisagree) {
  for (const char* how : {"count", "operation", "root", "collective", "allocation", "stream"}) {
    Launched job = start_on_nodes({"disagree", how});
    for (int rank = 0; rank < 4; ++rank) {
      const auto report = report_of(job, rank);
      ASSERT_TRUE(report) << how << ", rank " << rank << ": " << job.err();
      EXPECT_EQ(report->code, ErrorCode::kMismatch) << how << ": " << report->message;
      EXPECT_THAT(report->message, HasSubstr("ranks disagree")) << how;
    }
    EXPECT_EQ(job.wait(kEnough), 3) << job.err();
    EXPECT_TRUE(job.leaves_nobody());
  }
}

TEST_F(LevelsOnGpu, NameARankThatDoesNotCome) {
  Launched job = start_on_nodes({"away"}, {"LOCKSTEP_COMM_TIMEOUT=15s"});
  expect_rank_1_is_named(job, {0, 2, 3});
}

TEST_F(LevelsOnGpu, NameARankThatDies) {
  for (const int victim : {0, 3}) {
    Launched job = start_on_nodes({"loop"});
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(
          eventually([&] { return job.has_file("running-" + std::to_string(rank)); }, kEnough))
          << job.err();
    }
    ::kill(std::stoi(read_text(job.folder() / ("running-" + std::to_string(victim)))), SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const auto report = report_of(job, rank);
      ASSERT_TRUE(report) << "rank " << rank << " noticed nothing: " << job.err();
      EXPECT_EQ(report->code, ErrorCode::kPeerLost) << report->message;
      EXPECT_EQ(report->ranks, std::to_string(victim)) << report->message;
    }
    EXPECT_EQ(job.wait(kEnough), 128 + SIGKILL) << job.err();
    EXPECT_TRUE(job.leaves_nobody());
  }
}

// Needs the CUDA module, but no GPU.
class NcclLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(in_build("liblockstep_cuda.so"))) {
      GTEST_SKIP() << "SKIPPED: this build has no CUDA module";
    }
  }
  static std::string info_with(const std::string& file) {
    Launched job = start_ranks(1, {"info"}, {"LOCKSTEP_NCCL_LIBRARY=" + file});
    EXPECT_EQ(job.wait(kEnough), 0) << job.err();
    return job.out();
  }
};

TEST_F(NcclLibrary, ThatIsMissingIsSaid) {
  EXPECT_THAT(info_with("/nowhere/libnccl.so.2"),
              AllOf(HasSubstr("NCCL was not found"), HasSubstr("/nowhere/libnccl.so.2"),
                    HasSubstr("LOCKSTEP_NCCL_LIBRARY"), HasSubstr("comm.device_backend")));
}

TEST_F(NcclLibrary, ThatIsTooOldIsSaid) {
  const std::string file = in_build("tests/libold_nccl.so");
  EXPECT_THAT(info_with(file), AllOf(HasSubstr("NCCL 2.10.3 in " + file + " is too old"),
                                     HasSubstr("2.18.0 or later")));
}

}  // namespace
}  // namespace lockstep
