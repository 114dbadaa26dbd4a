// Errors of comm/nccl where CUDA and NCCL are simulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/comm/nccl/communicator.h"
#include "tests/comm/nccl/simulated/stuck_rank.h"
#include "tests/comm/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::on_ranks;

std::optional<Error> error_of_call(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

TEST(SimulatedNccl, RanksThatDisagreeNameBothCalls) {
  on_ranks(3, [](Communicator& group) {
    std::vector<float> data(600);
    const auto error = error_of_call(
        [&] { group.all_reduce(std::span(data).first(group.rank() == 1 ? 500 : 600)); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kMismatch);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("500 f32"), HasSubstr("600 f32")));
    const auto later = error_of_call([&] { group.barrier(); });
    ASSERT_TRUE(later);
    EXPECT_STREQ(later->what(), error->what());
  });
}

TEST(SimulatedNccl, BlocksOfOtherSizesAreNamed) {
  on_ranks(3, [](Communicator& group) {
    std::vector<float> in(15), out(16);
    std::vector<std::size_t> in_counts(3, 5), out_counts(3, 5);
    if (group.rank() == 1) out_counts[0] = 6;
    const auto gets = std::span(out).first(group.rank() == 1 ? 16 : 15);
    const auto error = error_of_call([&] { group.all_to_all_v(in, in_counts, gets, out_counts); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kMismatch);
    EXPECT_THAT(error->what(), HasSubstr("rank 0 sends 5 elements to rank 1, which expects 6"));
    EXPECT_THAT(error->ranks(), ElementsAre(0, 1));
  });
}

TEST(SimulatedNccl, AllocationsOfOtherSizesAreNamed) {
  on_ranks(2, [](Communicator& group) {
    const auto error = error_of_call([&] { group.allocate(group.rank() == 1 ? 8192 : 4096); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kMismatch);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("4096 bytes"), HasSubstr("8192 bytes")));
  });
}

TEST(SimulatedNccl, AnAbortEndsAllRanks) {
  on_ranks(3, [](Communicator& group) {
    std::vector<float> data(600);
    const auto error = error_of_call([&] {
      group.barrier();  // all have been made
      if (group.rank() == 1) group.abort("the disk is full");
      group.all_reduce(data);
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kAborted);
    EXPECT_THAT(error->what(), HasSubstr("the disk is full"));
  });
}

TEST(SimulatedNccl, ACallThatDoesNotEndIsAbortedAtItsDeadline) {
  on_ranks(1, [](Communicator&) {});  // sets the library
  const DeviceCommunicatorOptions options{.timeout = std::chrono::milliseconds(300)};
  std::atomic<int> timeouts{0};
  run_threads(2, [&](Communicator& world) {
    nccl::NcclCommunicator group(world.split(0, world.rank()), options);
    std::vector<float> data(600);
    group.all_reduce(data);
    world.barrier();
    nccl::stuck_rank = 1;
    world.barrier();
    const auto error = error_of_call([&] { group.all_reduce(data); });
    world.barrier();
    nccl::stuck_rank = nccl::kNoRank;
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr("all_reduce of 600 f32"), HasSubstr("waited 300 ms")));
    if (error->code() != ErrorCode::kTimeout) {
      EXPECT_EQ(error->code(), ErrorCode::kAborted);  // the other rank was first
      return;
    }
    EXPECT_THAT(error->ranks(), ElementsAre(1 - group.rank()));
    ++timeouts;
  });
  EXPECT_GE(timeouts, 1);
}

}  // namespace
}  // namespace lockstep
