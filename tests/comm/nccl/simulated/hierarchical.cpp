// Hierarchical communicators whose levels across nodes are NCCL's, where CUDA and NCCL are
// simulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/comm/nccl/levels.h"
#include "lockstep/comm/nccl/traffic.h"
#include "lockstep/tensor/device_memory.h"
#include "tests/comm/nccl/simulated/simulated_group.h"
#include "tests/comm/nccl/simulated/stuck_rank.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::on_nodes;
using testing::simulated_group;

constexpr DeviceCommunicatorOptions kForced{.device = {}, .backend = DeviceBackend::kHierarchical};

std::optional<Error> error_of_group(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

float value_at(int rank, std::size_t i) {
  return std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(rank));
}

template <class T>
T rounded_to(float value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(value);
  } else {
    return value;
  }
}

template <class T>
float as_float(T value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return to_float(value);
  } else {
    return value;
  }
}

// Of ranks [first, end), as a balanced tree, in 32 bits.
template <class T>
float balanced_sum(int first, int end, std::size_t i) {
  if (end - first == 1) return as_float(rounded_to<T>(value_at(first, i)));
  int left = 1;
  while (left * 2 < end - first) left *= 2;
  return balanced_sum<T>(first, first + left, i) + balanced_sum<T>(first + left, end, i);
}

template <class T>
void expect_tree_sums(Communicator& group, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<T> in(count * ranks);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = rounded_to<T>(value_at(group.rank(), i));
  std::vector<T> all = in, at_root(in.size()), block(count);
  group.all_reduce(all);
  group.reduce(in, group.rank() == 1 ? Data(at_root) : Data(nullptr, 0, dtype_of<T>),
               ReduceOp::kSum, 1);
  group.reduce_scatter(in, block);
  const auto is_sum = [&](T got, std::size_t i) {
    return as_float(got) == as_float(rounded_to<T>(balanced_sum<T>(0, group.size(), i)));
  };
  const std::size_t first = static_cast<std::size_t>(group.rank()) * count;
  for (std::size_t i = 0; i < in.size(); ++i) {
    ASSERT_TRUE(is_sum(all[i], i)) << "all_reduce of " << in.size() << ", " << i;
    ASSERT_TRUE(group.rank() != 1 || is_sum(at_root[i], i)) << "reduce, " << i;
  }
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_TRUE(is_sum(block[i], first + i)) << "reduce_scatter of " << count << ", " << i;
  }
}

TEST(SimulatedLevels, SumInTheOrderOfATreeOverAllRanks) {
  for (const auto& [ranks, nodes] : {std::pair{4, 2}, {6, 3}, {8, 2}, {8, 4}, {6, 2}, {9, 3}}) {
    on_nodes(ranks, nodes, [](Communicator& world) {
      DeviceCommunicatorOptions options = kForced;
      options.tree_order = true;
      const auto group = simulated_group(world.split(0, world.rank()), options);
      for (const std::size_t count : {1, 3, 1001}) {
        expect_tree_sums<float>(*group, count);
        expect_tree_sums<BFloat16>(*group, count);
      }
    });
  }
}

TEST(SimulatedLevels, ServeRanksOnAGridAlone) {
  for (const auto& [ranks, nodes] : {std::pair{2, 2}, {3, 2}, {5, 2}, {7, 3}}) {
    on_nodes(ranks, nodes, [](Communicator& world) {
      EXPECT_EQ(simulated_group(world.split(0, world.rank()), kForced)->backend(), "nccl");
    });
  }
  on_nodes(4, 2, [](Communicator& world) {
    const auto group = simulated_group(world.split(0, world.rank()), kForced);
    EXPECT_EQ(group->backend(), "hierarchical");
    EXPECT_EQ(group->split(world.rank() / 2, 0)->backend(), "nccl");
    EXPECT_EQ(group->split(0, 0)->backend(), "hierarchical");
  });
}

TEST(SimulatedLevels, RefuseChosenAlgorithmsAndWorkOn) {
  on_nodes(4, 2, [](Communicator& world) {
    const auto group = simulated_group(world.split(0, world.rank()), kForced);
    std::vector<float> data(100, 1.0f);
    const auto error = error_of_group([&] { group->run(all_reduce(data).with("ring")); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kUnsupported);
    group->all_reduce(data);
    EXPECT_EQ(data, std::vector<float>(100, 4.0f));
  });
}

// By tree NCCL takes staging memory, which the levels give it.
TEST(SimulatedLevels, TakeNoMemoryOfTheirOwnForNccl) {
  std::mutex mutex;
  on_nodes(4, 2, [&](Communicator& world) {
    world.barrier();
    const std::size_t before = memory_in_use(Device{});
    world.barrier();
    const auto group = simulated_group(world.split(0, world.rank()), kForced);
    std::vector<BFloat16> data(100'000);
    group->all_reduce(data);
    group->all_reduce(data, ReduceOp::kProd);
    std::vector<std::int32_t> mean(100);
    group->all_reduce(mean, ReduceOp::kMean);  // in one level
    group->barrier();
    {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(memory_in_use(Device{}) - before, 4 * 2 * kNcclBarrierBytes);
    }
    group->barrier();
  });
}

TEST(SimulatedLevels, CountBytesThatCrossNodes) {
  on_nodes(4, 2, [](Communicator& world) {
    const auto group = simulated_group(world.split(0, world.rank()), kForced);
    const auto across_of = [&](const Call& call) {
      const std::uint64_t before = group->bytes_across().value();
      group->run(call);
      return group->bytes_across().value() - before;
    };
    std::vector<float> data(4000), all(4000), block(1000);
    EXPECT_EQ(across_of(all_reduce(data)), 4000u * sizeof(float) / 2);
    EXPECT_EQ(across_of(reduce_scatter(data, block)), 1000u * sizeof(float));
    EXPECT_EQ(across_of(all_gather(block, all)), 1000u * sizeof(float));
    EXPECT_EQ(across_of(all_to_all(data, all)), 2u * 1000 * sizeof(float));  // to two far ranks
    const int peer = (group->rank() + 2) % 4;
    if (group->rank() < 2) {
      EXPECT_EQ(across_of(send(block, peer)), 1000u * sizeof(float));
    } else {
      EXPECT_EQ(across_of(receive(block, peer)), 0u);
    }
  });
}

TEST(NcclTraffic, OfARingCrossesAtTheEndOfANode) {
  const std::vector<int> nodes{0, 0, 1, 1};
  const Call call = all_reduce(Data(nullptr, 1000, DType::kF32));
  for (const int rank : {0, 2}) EXPECT_EQ(nccl::bytes_across_of_ring(call, rank, nodes), 0u);
  for (const int rank : {1, 3}) EXPECT_EQ(nccl::bytes_across_of_ring(call, rank, nodes), 6000u);
}

TEST(NcclTraffic, OfAnExchangeGoesToEveryFarRank) {
  const std::vector<int> nodes{0, 0, 0, 1};
  const Call sum = all_reduce(Data(nullptr, 1000, DType::kF32));
  EXPECT_EQ(nccl::bytes_across_of_exchange(sum, 0, nodes), 2000u);  // a part, and a result
  EXPECT_EQ(nccl::bytes_across_of_exchange(sum, 3, nodes), 6000u);
  const std::vector<std::size_t> counts{1, 2, 3, 4};
  const Call gathered = gather_v(ConstData(nullptr, 4, DType::kF32), Data(), counts, 0);
  EXPECT_EQ(nccl::bytes_across_of_exchange(gathered, 3, nodes), 16u);
}

TEST(SimulatedLevels, GiveWayToNcclWhereANodeHasNone) {
  on_nodes(4, 2, [](Communicator& world) {
    const nccl::LevelMakers makers{.inside =
                                       [&](std::unique_ptr<Communicator> node) {
                                         if (world.rank() == 3)
                                           fail(ErrorCode::kUnsupported,
                                                "the GPUs are not connected");
                                         return node;
                                       },
                                   .part =
                                       [](std::unique_ptr<Communicator> part) {
                                         return simulated_group(std::move(part), kForced);
                                       }};
    DeviceCommunicatorOptions options = kForced;
    const auto error =
        error_of_group([&] { nccl::make_levels(world.split(0, world.rank()), options, makers); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("node of rank 2"), HasSubstr("use \"nccl\"")));
    options.backend = DeviceBackend::kAuto;
    const auto group = nccl::make_levels(world.split(0, world.rank()), options, makers);
    EXPECT_EQ(group->backend(), "nccl");
    std::vector<float> data(10, 1.0f);
    group->all_reduce(data);
    EXPECT_EQ(data, std::vector<float>(10, 4.0f));
  });
}

// Rank 1 of every lane is on node 1.
TEST(SimulatedLevels, NameARankOfAllWhereALaneDoesNotEnd) {
  std::atomic<int> timeouts{0};
  on_nodes(4, 2, [&](Communicator& world) {
    DeviceCommunicatorOptions options = kForced;
    options.timeout = std::chrono::milliseconds(300);
    const auto group = simulated_group(world.split(0, world.rank()), options);
    std::vector<float> data(600);
    group->all_reduce(data);
    world.barrier();
    nccl::stuck_rank = 1;
    world.barrier();
    const auto error = error_of_group([&] { group->all_reduce(data); });
    world.barrier();
    nccl::stuck_rank = nccl::kNoRank;
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("waited 300 ms"));
    if (error->code() != ErrorCode::kTimeout) {
      EXPECT_EQ(error->code(), ErrorCode::kAborted);  // another rank was first
      return;
    }
    EXPECT_THAT(error->what(), HasSubstr("across nodes, where ranks 0 to 1 are ranks"));
    EXPECT_THAT(error->ranks(), ::testing::ElementsAre((group->rank() + 2) % 4));
    ++timeouts;
  });
  EXPECT_GE(timeouts, 1);
}

TEST(SimulatedLevels, ChooseByMeasuredLinks) {
  on_nodes(4, 2, [](Communicator& world) {
    DeviceCommunicatorOptions options = kForced;
    options.backend = DeviceBackend::kAuto;
    const auto group = simulated_group(world.split(0, world.rank()), options);
    for (const std::size_t count : {1, 1000, 300'000}) {
      std::vector<float> data(count, 1.0f);
      EXPECT_THAT(group->choice(all_reduce(data)).why, HasSubstr("links measured"));
      group->all_reduce(data);
      EXPECT_EQ(data, std::vector<float>(count, 4.0f));
    }
  });
}

}  // namespace
}  // namespace lockstep
