#include "lockstep/train/checkpoint/residual_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/parallel/compression/shards.h"
#include "lockstep/parallel/single_worker.h"

namespace lockstep::train::residual_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = parallel::Residual::Kind;

constexpr std::size_t kElements = (std::size_t{1} << 20) + 37;  // more than one chunk

// Has residuals of two buckets, and perhaps averages, and residuals of the sums of its own shards.
class Keeper : public parallel::SingleWorker {
 public:
  Keeper(int worker, int workers, bool sums)
      : SingleWorker(parallel::Reduction::kFast, 1),
        own_(kElements),
        velocity_(sums ? kElements : 0),
        sums_(velocity_.size()) {
    const auto rank = static_cast<std::size_t>(worker);
    std::size_t first = 0;
    for (const std::size_t size : {std::size_t{1001}, kElements - 1001}) {
      parts_.push_back({.range = {first, size}, .values = std::span(own_).subspan(first, size)});
      const parallel::BucketShards shards{size, static_cast<std::size_t>(workers)};
      const nn::FlatRange shard{first + shards.begin(rank), shards.size(rank)};
      if (sums) {
        parts_.push_back({.range = {first, size},
                          .values = std::span(velocity_).subspan(first, size),
                          .kind = Kind::kVelocity});
        parts_.push_back({.range = shard,
                          .values = std::span(sums_).subspan(shard.first, shard.elements),
                          .kind = Kind::kSums});
      }
      first += size;
    }
  }
  void fill(float number) {
    for (parallel::Residual& part : parts_) {
      for (std::size_t i = 0; i < part.values.size(); ++i) {
        const auto at = static_cast<float>((part.range.first + i) % 1013);
        part.values[i] = part.kind == Kind::kSums       ? -at
                         : part.kind == Kind::kVelocity ? at + 10 * number
                                                        : at + number;
      }
    }
  }
  std::vector<parallel::Residual> residuals() override { return parts_; }

  std::vector<float> own_;
  std::vector<float> velocity_;
  std::vector<float> sums_;  // elsewhere than in its shards: 0

 private:
  std::vector<parallel::Residual> parts_;
};

void save(int workers, bool sums, const std::filesystem::path& file) {
  run_threads(workers, [&](Communicator& world) {
    RunGroup group(&world);
    Keeper keeper(world.rank(), workers, sums);
    keeper.fill(static_cast<float>(world.rank()));
    ResidualExchange exchange(group, keeper, kElements);
    ASSERT_TRUE(exchange.any());
    if (group.leads()) {
      exchange.write(file)->finish();
    } else {
      exchange.give();
    }
    EXPECT_TRUE(exchange.settle(group.leads()));
  });
}

// The keepers of all workers, and the messages of the leader.
struct Restored {
  std::vector<std::unique_ptr<Keeper>> keepers;
  std::string told;
};
Restored restore(int workers, bool sums, const std::filesystem::path& file) {
  Restored all;
  all.keepers.resize(static_cast<std::size_t>(workers));
  run_threads(workers, [&](Communicator& world) {
    RunGroup group(&world);
    auto keeper = std::make_unique<Keeper>(world.rank(), workers, sums);
    ResidualExchange exchange(group, *keeper, kElements);
    exchange.restore(group.leads() ? std::optional(file) : std::nullopt,
                     [&](const std::string& text) { all.told = text; });
    all.keepers[static_cast<std::size_t>(world.rank())] = std::move(keeper);
  });
  return all;
}

TEST(ResidualExchange, GivesEveryWorkerItsOwnBack) {
  for (const bool sums : {true, false}) {
    const ScratchFolder folder;
    save(3, sums, folder.path() / "file");
    const Restored back = restore(3, sums, folder.path() / "file");
    EXPECT_THAT(back.told, IsEmpty());
    for (int worker = 0; worker < 3; ++worker) {
      Keeper expected(worker, 3, sums);
      expected.fill(static_cast<float>(worker));
      EXPECT_TRUE(back.keepers[static_cast<std::size_t>(worker)]->own_ == expected.own_);
      EXPECT_TRUE(back.keepers[static_cast<std::size_t>(worker)]->velocity_ == expected.velocity_);
      EXPECT_TRUE(back.keepers[static_cast<std::size_t>(worker)]->sums_ == expected.sums_);
    }
  }
}

TEST(ResidualExchange, SharesOutAmongAnotherNumber) {
  const ScratchFolder folder;
  save(3, true, folder.path() / "file");
  const Restored back = restore(2, true, folder.path() / "file");
  EXPECT_THAT(back.told, HasSubstr("saved by 3 workers"));
  EXPECT_THAT(back.told, HasSubstr("over 2"));
  for (const std::size_t i :
       {std::size_t{0}, std::size_t{1000}, std::size_t{1002}, kElements - 1}) {
    const auto at = static_cast<float>(i % 1013);
    const float all = (at + 0) + (at + 1) + (at + 2) - at;
    for (const auto& keeper : back.keepers) {
      EXPECT_EQ(keeper->own_[i], all / 2) << i;
      EXPECT_EQ(keeper->velocity_[i], (3 * at + 30) / 2) << i;
      EXPECT_EQ(keeper->sums_[i], 0) << i;
    }
  }
}

TEST(ResidualExchange, AFailedWriteLeavesNobodyWaitingAndIsKnownToAll) {
  const ScratchFolder folder;
  for (const bool tries : {true, false}) {
    run_threads(3, [&](Communicator& world) {
      RunGroup group(&world);
      Keeper keeper(world.rank(), 3, true);
      ResidualExchange exchange(group, keeper, kElements);
      if (!group.leads()) exchange.give();
      if (group.leads() && tries) {
        EXPECT_THROW(exchange.write(folder.path() / "not a folder" / "file"), Error);
      }
      EXPECT_FALSE(exchange.settle(!group.leads()));
    });
  }
}

TEST(ResidualExchange, OfAnotherModelIsDroppedLoudly) {
  const ScratchFolder folder;
  save(2, false, folder.path() / "file");
  std::string told;
  run_threads(1, [&](Communicator&) {
    RunGroup group(nullptr);
    Keeper keeper(0, 1, false);
    ResidualExchange exchange(group, keeper, 1001);
    exchange.restore(folder.path() / "file", [&](const std::string& text) { told = text; });
    EXPECT_EQ(keeper.own_[7], 0);
  });
  EXPECT_THAT(told, HasSubstr("another model"));
}

}  // namespace
}  // namespace lockstep::train::residual_test
