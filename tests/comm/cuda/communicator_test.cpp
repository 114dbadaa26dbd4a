// What the conformance suite does not ask of a communicator over GPU memory: the order of streams,
// captures, the order of sums, and errors that kernels find.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "lockstep/base/system/clock.h"
#include "lockstep/comm/device_communicator.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"
#include "tests/tensor/cuda/gpu.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::kGpu;

class CudaCommunicator : public testing::OnGpu<::testing::Test> {};

using Body = std::function<void(Communicator& group)>;

void on_gpu_ranks(int ranks, const Body& body,
                  std::chrono::nanoseconds timeout = std::chrono::seconds(20)) {
  run_threads(ranks, [&](Communicator& world) {
    const auto group = make_device_communicator(world.split(0, world.rank()),
                                                {.device = kGpu, .timeout = timeout});
    body(*group);
  });
}

Data data_of(const SymmetricBuffer& buffer) {
  return {buffer.data(), buffer.bytes() / sizeof(float), DType::kF32};
}

void upload(std::byte* to, const std::vector<float>& values) {
  memory_of(kGpu).copy(to, reinterpret_cast<const std::byte*>(values.data()),
                       values.size() * sizeof(float));
}

std::vector<float> download(const std::byte* from, std::size_t count) {
  std::vector<float> values(count);
  memory_of(kGpu).copy(reinterpret_cast<std::byte*>(values.data()), from, count * sizeof(float));
  return values;
}

float value_of(int rank, std::size_t i) {
  return std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(rank));
}

std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_of(rank, i);
  return values;
}

// Of ranks [first, end), as a balanced tree.
float tree_sum(int first, int end, std::size_t i) {
  if (end - first == 1) return value_of(first, i);
  int left = 1;
  while (left * 2 < end - first) left *= 2;
  return tree_sum(first, first + left, i) + tree_sum(first + left, end, i);
}

TEST_F(CudaCommunicator, SumsInTheOrderOfABalancedTree) {
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    for (std::size_t count : {1000, 500'003}) {  // one shot, two shots
      on_gpu_ranks(ranks, [&](Communicator& group) {
        const SymmetricBuffer buffer = group.allocate(count * sizeof(float));
        upload(buffer.data(), values_of(group.rank(), count));
        group.all_reduce(data_of(buffer));
        const std::vector<float> sums = download(buffer.data(), count);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(sums[i], tree_sum(0, ranks, i)) << ranks << " ranks, element " << i;
        }
      });
    }
  }
}

// Makes calls of a rank come later than those of others.
void come_late(std::size_t microseconds) {
  const auto end = SteadyClock::now() + std::chrono::microseconds(microseconds);
  while (SteadyClock::now() < end) {
  }
}

// Ranks are of different speed, and one may begin the next sum while others still read the last.
TEST_F(CudaCommunicator, SmallSumsOfDifferentSizesDoNotMix) {
  const std::vector<std::size_t> counts = {60'000, 700, 1, 33'001, 5'000, 65'536, 12};
  constexpr int kRounds = 60;
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  for (const int ranks : {2, 3, 4}) {
    on_gpu_ranks(ranks, [&](Communicator& group) {
      const Buffer source(all * sizeof(float), kGpu);
      const Buffer sums(all * kRounds * sizeof(float), kGpu);
      upload(source.data(), values_of(group.rank(), all));
      Stream stream(kGpu);
      group.barrier();
      for (int round = 0; round < kRounds; ++round) {
        std::size_t first = 0;
        for (const std::size_t count : counts) {
          stream.run([&, round, first, count] {
            if (round % 3 == group.rank() % 3) come_late(count % 50);
            const std::size_t to = static_cast<std::size_t>(round) * all + first;
            group.run(all_reduce(Data(source.data() + first * sizeof(float), count, DType::kF32),
                                 Data(sums.data() + to * sizeof(float), count, DType::kF32)));
          });
          first += count;
        }
      }
      stream.synchronize();
      const std::vector<float> got = download(sums.data(), all * kRounds);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i] != tree_sum(0, ranks, i % all);
      group.barrier();  // all come to it, also with wrong sums
      EXPECT_EQ(wrong, 0u) << ranks << " ranks, rank " << group.rank();
    });
  }
}

TEST_F(CudaCommunicator, CallsInATaskAreInTheOrderOfTheStream) {
  constexpr std::size_t kCount = 300'000;
  on_gpu_ranks(4, [&](Communicator& group) {
    const SymmetricBuffer buffer = group.allocate(kCount * sizeof(float));
    const Buffer source(kCount * sizeof(float), kGpu);
    upload(source.data(), std::vector<float>(kCount, static_cast<float>(group.rank() + 1)));
    Stream stream(kGpu);
    for (int round = 0; round < 20; ++round) {
      stream.run([&] { memory_of(kGpu).copy(buffer.data(), source.data(), buffer.bytes()); });
      stream.run([&] { group.run(all_reduce(data_of(buffer))); });
      stream.run([&] { group.run(all_reduce(data_of(buffer))); });
    }
    stream.synchronize();
    EXPECT_EQ(group.failure(), std::nullopt);
    EXPECT_THAT(download(buffer.data(), kCount), ::testing::Each(40.0f));
    group.barrier();
  });
}

TEST_F(CudaCommunicator, MemoryThatIsNotSymmetricIsRefusedInAStream) {
  on_gpu_ranks(2, [](Communicator& group) {
    const Buffer data(4 << 20, kGpu);
    Stream stream(kGpu);
    stream.run([&] { group.run(all_reduce(Data(data.data(), 1 << 20, DType::kF32))); });
    try {
      stream.synchronize();
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("needs symmetric memory"));
    }
  });
}

TEST_F(CudaCommunicator, CapturedCallsRunWithEveryLaunch) {
  constexpr std::size_t kCount = 200'000;
  on_gpu_ranks(2, [&](Communicator& group) {
    const SymmetricBuffer buffer = group.allocate(kCount * sizeof(float));
    upload(buffer.data(), std::vector<float>(kCount, 1.0f));
    const auto ops = make_cuda_ops(0);
    const auto step = capture(*ops, [&] {
      ops->in_order([&] { group.run(all_reduce(data_of(buffer))); });
      ops->in_order([&] { group.run(all_reduce(Data(buffer.data(), 10, DType::kF32))); });
    });
    group.barrier();
    for (int i = 0; i < 5; ++i) step->launch();
    ops->synchronize();
    const std::vector<float> values = download(buffer.data(), kCount);
    EXPECT_EQ(values[0], 1024.0f);
    EXPECT_EQ(values[10], 32.0f);
    EXPECT_EQ(values.back(), 32.0f);
    group.barrier();
  });
}

TEST_F(CudaCommunicator, RanksThatDisagreeGetAnError) {
  on_gpu_ranks(3, [](Communicator& group) {
    const SymmetricBuffer buffer = group.allocate(4 << 20);
    const std::size_t count = group.rank() == 1 ? 500'000 : 600'000;
    const auto begin = SteadyClock::now();
    try {
      group.run(all_reduce(Data(buffer.data(), count, DType::kF32)));
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("600000"));
    }
    EXPECT_LT(seconds_since(begin), 5);
    EXPECT_THROW(group.barrier(), Error);
  });
}

TEST_F(CudaCommunicator, ARankThatDoesNotComeIsNamed) {
  on_gpu_ranks(
      3,
      [](Communicator& group) {
        const SymmetricBuffer buffer = group.allocate(4 << 20);
        if (group.rank() == 1) {
          EXPECT_TRUE(group.wait_for_failure(std::chrono::seconds(20)));
          return;
        }
        Stream stream(kGpu);
        stream.run([&] { group.run(all_reduce(data_of(buffer))); });
        stream.synchronize();
        const auto failure = group.failure();
        ASSERT_TRUE(failure);
        EXPECT_THAT(failure->what(), HasSubstr("rank 1"));
      },
      std::chrono::milliseconds(500));
}

TEST_F(CudaCommunicator, AbortEndsKernelsThatWait) {
  on_gpu_ranks(2, [](Communicator& group) {
    const SymmetricBuffer buffer = group.allocate(4 << 20);
    if (group.rank() == 1) {
      group.abort("enough");
      return;
    }
    Stream stream(kGpu);
    stream.run([&] { group.run(all_reduce(data_of(buffer))); });
    try {
      stream.synchronize();  // throws where the abort came before the call
    } catch (const Error&) {
    }
    const auto failure = group.failure();
    ASSERT_TRUE(failure);
    EXPECT_THAT(failure->what(), HasSubstr("enough"));
  });
}

TEST_F(CudaCommunicator, TakesAsMuchMemoryAsItSays) {
  run_threads(2, [](Communicator& world) {
    world.barrier();
    const std::size_t before = memory_in_use(kGpu);
    world.barrier();
    const auto group = make_device_communicator(world.split(0, world.rank()), {.device = kGpu});
    world.barrier();
    EXPECT_EQ(memory_in_use(kGpu), before + 2 * device_communicator_bytes(false));
    world.barrier();
    const Buffer data(4 << 20, kGpu);
    group->all_reduce(Data(data.data(), 1 << 20, DType::kF32));
    world.barrier();
    EXPECT_EQ(memory_in_use(kGpu), before + 2 * device_communicator_bytes(true) + 2 * data.bytes());
    world.barrier();
  });
}

}  // namespace
}  // namespace lockstep
