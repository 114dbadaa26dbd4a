// The other half of the suite that every backend passes: unequal blocks, a user's operation,
// messages, signals, operations in flight, groups of groups. See ranks.h for how it runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/comm/oracle.h"
#include "tests/comm/ranks.h"

namespace lockstep {
namespace {

using testing::block_element;
using testing::expected_reduced;
using testing::input_of;
using testing::on_every_size;
using testing::on_ranks;

// Sizes that differ from rank to rank, zero among them.
std::vector<std::size_t> varying_counts(int ranks, std::size_t unit) {
  std::vector<std::size_t> counts;
  for (int r = 0; r < ranks; ++r)
    counts.push_back(unit * static_cast<std::size_t>((r * 5 + 1) % 4));
  return counts;
}

TEST(Varying, AllGatherGatherAndScatter) {
  on_every_size([](Communicator& comm) {
    for (std::size_t unit : {1, 33, 9000, 120'000}) {
      const std::vector<std::size_t> counts = varying_counts(comm.size(), unit);
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      const std::size_t mine = counts[static_cast<std::size_t>(comm.rank())];
      std::vector<std::int32_t> expected;
      for (int r = 0; r < comm.size(); ++r) {
        for (std::size_t i = 0; i < counts[static_cast<std::size_t>(r)]; ++i) {
          expected.push_back(block_element<std::int32_t>(r, 0, i));
        }
      }
      std::vector<std::int32_t> in(mine);
      for (std::size_t i = 0; i < mine; ++i) in[i] = block_element<std::int32_t>(comm.rank(), 0, i);
      std::vector<std::int32_t> all(total);
      comm.all_gather_v(in, all, counts);
      EXPECT_EQ(all, expected);

      const int root = comm.size() - 1;
      const bool is_root = comm.rank() == root;
      std::vector<std::int32_t> gathered(is_root ? total : 0);
      comm.gather_v(in, gathered, counts, root);
      if (is_root) {
        EXPECT_EQ(gathered, expected);
      }

      std::vector<std::int32_t> back(mine);
      comm.scatter_v(gathered, counts, back, root);
      EXPECT_EQ(back, in);
    }
  });
}

TEST(Varying, AllToAll) {
  on_every_size([](Communicator& comm) {
    const int n = comm.size();
    const auto size = [&](int from, int to) {
      return static_cast<std::size_t>((from * 3 + to * 2) % 5) * 700;
    };
    std::vector<std::size_t> out_counts;
    std::vector<std::size_t> in_counts;
    std::vector<float> in;
    for (int j = 0; j < n; ++j) {
      in_counts.push_back(size(comm.rank(), j));
      out_counts.push_back(size(j, comm.rank()));
      for (std::size_t i = 0; i < in_counts.back(); ++i)
        in.push_back(block_element<float>(comm.rank(), j, i));
    }
    std::vector<float> out(std::accumulate(out_counts.begin(), out_counts.end(), std::size_t{0}));
    comm.all_to_all_v(in, in_counts, out, out_counts);
    std::size_t at = 0;
    for (int j = 0; j < n; ++j) {
      for (std::size_t i = 0; i < out_counts[static_cast<std::size_t>(j)]; ++i) {
        ASSERT_EQ(out[at++], block_element<float>(j, comm.rank(), i));
      }
    }
  });
}

// Rank 0 neither gives nor gets anything, which must not put it out of step with the others.
TEST(Varying, ARankWithNothingToExchangeStaysInStep) {
  on_every_size([](Communicator& comm) {
    const auto n = static_cast<std::size_t>(comm.size());
    const std::size_t unit = comm.rank() == 0 ? 0 : 300;
    std::vector<std::size_t> counts(n, unit);
    counts[0] = 0;
    const std::size_t total = unit * (n - 1);
    const std::vector<std::int32_t> in(total, comm.rank());
    std::vector<std::int32_t> out(total);
    for (int round = 0; round < 3; ++round) {
      comm.all_to_all_v(in, counts, out, counts);
      for (std::size_t k = 0; k < total; ++k) {
        ASSERT_EQ(out[k], static_cast<std::int32_t>(1 + k / unit));
      }
      std::vector<float> data(20'000, 1.0f);
      comm.all_reduce(data);
      ASSERT_EQ(data.back(), static_cast<float>(n));
    }
  });
}

TEST(UserOperation, CombinesWithTheUsersFunction) {
  // max by magnitude
  const UserReduction largest{
      "largest magnitude",
      [](void* accumulator, const void* operand, std::size_t count, DType, void*) {
        auto* a = static_cast<float*>(accumulator);
        const auto* b = static_cast<const float*>(operand);
        for (std::size_t i = 0; i < count; ++i) {
          if (std::abs(b[i]) > std::abs(a[i])) a[i] = b[i];
        }
      },
      nullptr};
  on_every_size([&](Communicator& comm) {
    if (!testing::takes_user_operations(comm)) return;
    for (std::size_t count : {3, 5000, 50'000}) {
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = static_cast<float>(comm.rank() + 1) * (comm.rank() % 2 == 0 ? -1.0f : 1.0f);
      }
      comm.all_reduce(data, ReduceOp(largest));
      const float expected =
          static_cast<float>(comm.size()) * ((comm.size() - 1) % 2 == 0 ? -1.0f : 1.0f);
      EXPECT_THAT(data, ::testing::Each(expected));
    }
  });
}

TEST(PointToPoint, MessagesOfEverySizeInOrder) {
  on_every_size([](Communicator& comm) {
    if (comm.size() < 2 || comm.rank() > 1) return;
    for (std::size_t count : {0, 1, 5, 1000, 300'000}) {
      if (comm.rank() == 0) {
        comm.send(input_of<double>(0, count), 1);
        std::vector<double> back(count);
        comm.receive(back, 1);
        EXPECT_EQ(back, input_of<double>(1, count));
      } else {
        std::vector<double> data(count);
        comm.receive(data, 0);
        EXPECT_EQ(data, input_of<double>(0, count));
        comm.send(input_of<double>(1, count), 0);
      }
    }
  });
}

TEST(PointToPoint, CrossingLargeSendsDoNotBlockEachOther) {
  on_every_size([](Communicator& comm) {
    const int n = comm.size();
    constexpr std::size_t kCount = 500'000;
    const std::vector<float> mine = input_of<float>(comm.rank(), kCount);
    std::vector<std::vector<float>> theirs(static_cast<std::size_t>(n), std::vector<float>(kCount));
    std::vector<Work> works;
    for (int peer = 0; peer < n; ++peer) {
      if (peer == comm.rank()) continue;
      works.push_back(comm.start(send(mine, peer)));
      works.push_back(comm.start(receive(theirs[static_cast<std::size_t>(peer)], peer)));
    }
    for (const Work& work : works) work.wait();
    for (int peer = 0; peer < n; ++peer) {
      if (peer == comm.rank()) continue;
      EXPECT_EQ(theirs[static_cast<std::size_t>(peer)], input_of<float>(peer, kCount));
    }
  });
}

TEST(PointToPoint, SignalsAreCountedAndCarryWhatWasWritten) {
  on_every_size([](Communicator& comm) {
    if (comm.size() < 2) return;
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (int i = 0; i < 20; ++i) {
      comm.signal(next);
      comm.signal(next);
      comm.wait_signal(previous);
      comm.wait_signal(previous);
    }
  });
}

TEST(PointToPoint, CopyMovesInsideARank) {
  on_ranks(1, [](Communicator& comm) {
    std::vector<float> out(100);
    comm.copy(input_of<float>(0, 100), out);
    EXPECT_EQ(out, input_of<float>(0, 100));
    std::vector<float> later(100);
    comm.start(copy(out, later)).wait();
    EXPECT_EQ(later, out);
  });
}

TEST(Asynchronous, SeveralOperationsInFlight) {
  on_every_size([](Communicator& comm) {
    constexpr std::size_t kCount = 10'000;
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    for (int k = 0; k < 8; ++k)
      data.push_back(input_of<float>(comm.rank(), kCount + static_cast<std::size_t>(k)));
    for (auto& vector : data) works.push_back(comm.start(all_reduce(vector)));
    std::vector<float> blocking = input_of<float>(comm.rank(), 10);
    comm.all_reduce(blocking);  // keeps its place in the order
    for (const Work& work : works) {
      EXPECT_TRUE(work.wait_for(std::chrono::seconds(60)));
      EXPECT_TRUE(work.done());
      EXPECT_FALSE(work.error());
    }
    for (const auto& vector : data) {
      for (std::size_t i = 0; i < vector.size(); ++i) {
        ASSERT_EQ(vector[i], expected_reduced<float>(comm.size(), i, ReduceOp::kSum));
      }
    }
  });
}

TEST(Split, GroupsWorkSideBySide) {
  on_every_size([](Communicator& comm) {
    const int color = comm.rank() % 2;
    const auto half = comm.split(color, -comm.rank());  // reversed order
    const int expected_size = (comm.size() + 1 - color) / 2;
    ASSERT_EQ(half->size(), expected_size);
    EXPECT_EQ(half->rank(), expected_size - 1 - comm.rank() / 2);
    std::vector<std::int64_t> data = {comm.rank()};
    half->all_reduce(data);
    std::int64_t expected = 0;
    for (int r = color; r < comm.size(); r += 2) expected += r;
    EXPECT_EQ(data[0], expected);
    const auto memory = half->allocate(4096);
    std::fill(memory.as<float>().begin(), memory.as<float>().end(), 1.0f);
    half->all_reduce(memory.as<float>());
    EXPECT_EQ(memory.as<float>()[100], static_cast<float>(half->size()));
    const auto nobody = half->split(-1, 0);
    EXPECT_EQ(nobody, nullptr);
  });
}

TEST(Order, ManyRoundsOfMixedOperations) {
  on_every_size([](Communicator& comm) {
    std::vector<std::int32_t> value(1);
    std::vector<std::int32_t> all(static_cast<std::size_t>(comm.size()));
    for (int i = 0; i < 300; ++i) {
      value[0] = comm.rank() + i;
      const int root = i % comm.size();
      comm.broadcast(value, root);
      ASSERT_EQ(value[0], root + i);
      value[0] = comm.rank() * i;
      comm.all_gather(value, all);
      for (int r = 0; r < comm.size(); ++r) ASSERT_EQ(all[static_cast<std::size_t>(r)], r * i);
      comm.gather(value, comm.rank() == root ? Data(all) : Data(nullptr, 0, DType::kI32), root);
      if (i % 7 == 0) comm.barrier();
      comm.all_reduce(value);
      ASSERT_EQ(value[0], i * comm.size() * (comm.size() - 1) / 2);
    }
  });
}

}  // namespace
}  // namespace lockstep
