// Errors of hierarchical communicators: ranks that disagree, do not come, or abort, and levels that
// fail by themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/comm/fault.h"
#include "tests/comm/hierarchical/host_levels.h"

namespace lockstep::hierarchical {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::host_levels;
using testing::on_emulated_nodes;
using testing::split_levels;

constexpr std::chrono::milliseconds kShortDeadline(300);

std::optional<Error> error_of_levels(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// A level that fails when it is asked to reduce.
class FailingLevel final : public Communicator {
 public:
  FailingLevel(std::unique_ptr<Communicator> real, Error error)
      : real_(std::move(real)), error_(std::move(error)) {}

  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  std::string_view backend() const override { return real_->backend(); }
  std::vector<int> machines() const override { return real_->machines(); }
  std::uint64_t bytes_sent() const override { return real_->bytes_sent(); }
  void run(const Call& call) override {
    if (reduces(call.kind)) {
      fault_.report(error_);
      throw Error(error_);
    }
    real_->run(call);
  }
  Work start(const Call& call) override { return real_->start(call); }
  void signal(int peer) override { real_->signal(peer); }
  void wait_signal(int peer) override { real_->wait_signal(peer); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return real_->split(color, key);
  }
  SymmetricBuffer allocate(std::size_t bytes) override { return real_->allocate(bytes); }
  void abort(std::string_view reason) override { real_->abort(reason); }
  std::optional<Error> failure() const override {
    return fault_.present() ? fault_.error() : real_->failure();
  }
  Choice choice(const Call& call) const override { return real_->choice(call); }

 private:
  std::unique_ptr<Communicator> real_;
  Error error_;
  Fault fault_;
};

// Whose level across nodes fails at rank 3.
std::unique_ptr<Communicator> with_failing_lane(Communicator& world, const Error& error) {
  std::unique_ptr<Communicator> host = world.split(0, world.rank());
  const NodeGrid grid = node_grid(host->machines()).value();
  constexpr std::size_t kStaging = 4096;
  Levels levels = split_levels(*host, grid, kStaging);
  if (host->rank() == 3) {
    levels.across = std::make_unique<FailingLevel>(std::move(levels.across), error);
  }
  return std::make_unique<HierarchicalCommunicator>(
      std::move(host), std::move(levels),
      HierarchicalOptions{.two_levels = {.grid = grid, .staging_bytes = kStaging},
                          .forced = true,
                          .is_exchange = nullptr,
                          .make_part = nullptr});
}

TEST(LevelFailures, RanksThatDisagreeNameBothCallsAndNoDataMoves) {
  on_emulated_nodes(4, 2, [](Communicator& world) {
    const auto group = host_levels(world.split(0, world.rank()));
    std::vector<float> data(600, 1.0f);
    // A whole node differs: each level alone would not see it.
    const bool is_odd = group->rank() >= 2;
    const auto error =
        error_of_levels([&] { group->all_reduce(std::span(data).first(is_odd ? 500 : 600)); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kMismatch);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("500 f32"), HasSubstr("600 f32")));
    EXPECT_EQ(data, std::vector<float>(600, 1.0f));
    const auto later = error_of_levels([&] { group->barrier(); });
    ASSERT_TRUE(later);
    EXPECT_STREQ(later->what(), error->what());
    EXPECT_STREQ(group->failure()->what(), error->what());
  });
}

TEST(LevelFailures, RanksThatDisagreeOnTheLevelsAreNamed) {
  on_emulated_nodes(4, 2, [](Communicator& world) {
    const auto group = host_levels(world.split(0, world.rank()));
    std::vector<float> data(600, 1.0f);
    const auto error = error_of_levels([&] {
      group->rank() == 1 ? group->broadcast(data, 0) : group->all_reduce(data);  // one and two
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kMismatch);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("broadcast"), HasSubstr("all_reduce")));
  });
}

TEST(LevelFailures, AllocationsOfOtherSizesAreNamed) {
  on_emulated_nodes(4, 2, [](Communicator& world) {
    const auto group = host_levels(world.split(0, world.rank()));
    const auto error = error_of_levels([&] { group->allocate(group->rank() == 1 ? 8192 : 4096); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kMismatch);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("4096 bytes"), HasSubstr("8192 bytes")));
  });
}

TEST(LevelFailures, AnAbortEndsAllRanksAndAllLevels) {
  on_emulated_nodes(6, 3, [](Communicator& world) {
    const auto group = host_levels(world.split(0, world.rank()));
    std::vector<float> data(600);
    const auto error = error_of_levels([&] {
      group->barrier();
      if (group->rank() == 4) group->abort("the disk is full");
      for (;;) group->all_reduce(data);
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kAborted);
    EXPECT_THAT(error->what(), HasSubstr("the disk is full"));
    EXPECT_TRUE(group->wait_for_failure(std::chrono::seconds(0)));
  });
}

TEST(LevelFailures, ARankThatDoesNotComeIsNamed) {
  on_emulated_nodes(
      4, 2,
      [](Communicator& world) {
        const auto group = host_levels(world.split(0, world.rank()));
        std::vector<float> data(600);
        if (group->rank() == 3) {
          EXPECT_TRUE(group->wait_for_failure(std::chrono::minutes(1)));
          return;
        }
        const auto error = error_of_levels([&] { group->all_reduce(data); });
        ASSERT_TRUE(error);
        EXPECT_THAT(error->what(), HasSubstr("rank 3"));
        if (error->code() != ErrorCode::kTimeout) {
          EXPECT_EQ(error->code(), ErrorCode::kAborted);  // another rank was first
          return;
        }
        EXPECT_THAT(error->ranks(), ElementsAre(3));
      },
      kShortDeadline);
}

// Rank 0 of the lane 1 3 is rank 1 of all. What rank 3 finds ends all ranks: also those of lane 0
// 2, which then wait inside their nodes.
TEST(LevelFailures, OfOneLevelEndAllAndNameTheRankOfAll) {
  on_emulated_nodes(4, 2, [](Communicator& world) {
    const auto group =
        with_failing_lane(world, Error(ErrorCode::kTimeout, "reduce: waited 1 s for rank 0", {0}));
    std::vector<float> data(600);
    const auto error = error_of_levels([&] {
      for (;;) group->all_reduce(data);
    });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("across nodes, where ranks 0 to 1 are ranks 1, 3"),
                                     HasSubstr("waited 1 s for rank 0")));
    if (group->rank() == 3) {
      EXPECT_EQ(error->code(), ErrorCode::kTimeout);
      EXPECT_THAT(error->ranks(), ElementsAre(1));
    } else {
      EXPECT_EQ(error->code(), ErrorCode::kAborted);
    }
  });
}

TEST(LevelFailures, AreKnownWithoutACall) {
  on_emulated_nodes(4, 2, [](Communicator& world) {
    const auto group = host_levels(world.split(0, world.rank()));
    group->barrier();
    if (group->rank() == 2) group->abort("the disk is full");
    EXPECT_TRUE(group->wait_for_failure(std::chrono::minutes(1)));
    EXPECT_THAT(group->failure()->what(), HasSubstr("the disk is full"));
  });
}

TEST(LevelFailures, InvalidCallsAreRefusedAndTheGroupWorksOn) {
  on_emulated_nodes(4, 2, [](Communicator& world) {
    const auto group = host_levels(world.split(0, world.rank()));
    std::vector<float> data(8, 1.0f), other(3);
    EXPECT_THROW(group->all_reduce(data, other), Error);
    group->all_reduce(data);
    EXPECT_EQ(data, std::vector<float>(8, 4.0f));
  });
}

TEST(LevelFailures, TooLittleStagingMemoryIsRefused) {
  on_emulated_nodes(4, 2, [](Communicator& world) {
    const auto error =
        error_of_levels([&] { host_levels(world.split(0, world.rank()), {.staging_bytes = 64}); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error->what(), HasSubstr("64 B"));
  });
}

}  // namespace
}  // namespace lockstep::hierarchical
