// Calls among the operations of a GPU on memory that is not symmetric: staged collectives and
// messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "lockstep/comm/device_communicator.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"
#include "tests/tensor/cuda/gpu.h"

namespace lockstep::queued_calls_test {
namespace {

using ::testing::HasSubstr;
using testing::kGpu;

class CudaQueuedCalls : public testing::OnGpu<::testing::Test> {};

using Body = std::function<void(Communicator& group, Communicator& host)>;

void on_ranks(int ranks, const DeviceCommunicatorOptions& options, const Body& body) {
  run_threads(ranks, [&](Communicator& world) {
    const auto group = make_device_communicator(world.split(0, world.rank()), options);
    body(*group, world);
  });
}

DeviceCommunicatorOptions staged() {
  return {.device = kGpu, .timeout = std::chrono::seconds(20), .staged = true};
}
DeviceCommunicatorOptions with_messages() {
  return {.device = kGpu, .timeout = std::chrono::seconds(20), .messages = true};
}

float value_of(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101);
}

// Floats on the GPU, in memory of this rank alone.
class Floats {
 public:
  explicit Floats(std::size_t count) : count_(count), buffer_(count * sizeof(float), kGpu) {}

  Data data() const { return {buffer_.data(), count_, DType::kF32}; }
  void fill(int rank) const {
    std::vector<float> values(count_);
    for (std::size_t i = 0; i < count_; ++i) values[i] = value_of(rank, i);
    set(values);
  }
  void set(const std::vector<float>& values) const {
    memory_of(kGpu).copy(buffer_.data(), reinterpret_cast<const std::byte*>(values.data()),
                         count_ * sizeof(float));
  }
  std::vector<float> get() const {
    std::vector<float> values(count_);
    memory_of(kGpu).copy(reinterpret_cast<std::byte*>(values.data()), buffer_.data(),
                         count_ * sizeof(float));
    return values;
  }

 private:
  std::size_t count_;
  Buffer buffer_;
};

// Of one piece of staging memory and of several.
constexpr std::size_t kCounts[] = {100'000, 3'000'000};

TEST_F(CudaQueuedCalls, SumsOfAnyMemoryAreInTheOrderOfTheStream) {
  for (const int ranks : {2, 4}) {
    for (const std::size_t count : kCounts) {
      on_ranks(ranks, staged(), [&](Communicator& group, Communicator& host) {
        const Floats values(count), source(count);
        source.set(std::vector<float>(count, static_cast<float>(group.rank() + 1)));
        const auto ops = make_cuda_ops(0);
        host.barrier();  // loads libraries, which waits for running kernels
        for (int round = 0; round < 3; ++round) {
          ops->in_order([&] {
            memory_of(kGpu).copy(values.data().bytes, source.data().bytes, count * sizeof(float));
            group.all_reduce(values.data());
            group.all_reduce(values.data());
          });
        }
        ops->synchronize();
        EXPECT_EQ(group.failure(), std::nullopt);
        const float sum = static_cast<float>(ranks * (ranks + 1) / 2 * ranks);
        EXPECT_THAT(values.get(), ::testing::Each(sum)) << ranks << " ranks, " << count;
      });
    }
  }
}

TEST_F(CudaQueuedCalls, BlocksOfAnyMemoryComeToTheirPlaces) {
  constexpr int kRanks = 3;
  for (const std::size_t count : kCounts) {
    on_ranks(kRanks, staged(), [&](Communicator& group, Communicator& host) {
      const Floats mine(count), all(kRanks * count), sums(count), exchanged(kRanks * count);
      mine.fill(group.rank());
      const auto ops = make_cuda_ops(0);
      host.barrier();  // loads libraries, which waits for running kernels
      ops->in_order([&] {
        group.all_gather(mine.data(), all.data());
        group.reduce_scatter(all.data(), sums.data());
        group.all_to_all(all.data(), exchanged.data());
      });
      ops->synchronize();
      EXPECT_EQ(group.failure(), std::nullopt);
      const std::vector<float> gathered = all.get();
      const std::vector<float> scattered = sums.get();
      const std::vector<float> blocks = exchanged.get();
      for (std::size_t i = 0; i < count; ++i) {
        for (int r = 0; r < kRanks; ++r) {
          const std::size_t at = static_cast<std::size_t>(r) * count + i;
          ASSERT_EQ(gathered[at], value_of(r, i)) << at;
          ASSERT_EQ(blocks[at], value_of(group.rank(), i)) << at;
        }
        ASSERT_EQ(scattered[i], kRanks * value_of(group.rank(), i)) << i;
      }
    });
  }
}

TEST_F(CudaQueuedCalls, StagedCallsAreCaptured) {
  constexpr std::size_t kCount = 3'000'000;
  on_ranks(2, staged(), [&](Communicator& group, Communicator& host) {
    const Floats values(kCount);
    values.set(std::vector<float>(kCount, 1));
    const auto ops = make_cuda_ops(0);
    const auto step =
        capture(*ops, [&] { ops->in_order([&] { group.all_reduce(values.data()); }); });
    host.barrier();
    for (int i = 0; i < 5; ++i) step->launch();
    ops->synchronize();
    EXPECT_EQ(group.failure(), std::nullopt);
    EXPECT_THAT(values.get(), ::testing::Each(32.0f));
    host.barrier();
  });
}

TEST_F(CudaQueuedCalls, BlocksThatDifferAreRefused) {
  on_ranks(2, staged(), [](Communicator& group, Communicator& host) {
    const Floats from(3), to(3);
    const std::vector<std::size_t> counts = {2, 1};
    const auto ops = make_cuda_ops(0);
    host.barrier();  // loads libraries, which waits for running kernels
    const std::size_t out = group.rank() == 0 ? 2 : 1;
    const std::vector<std::size_t> out_counts = {out, out};
    const Floats got(2 * out);
    try {
      ops->in_order([&] { group.all_to_all_v(from.data(), counts, got.data(), out_counts); });
      ops->synchronize();
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("needs symmetric memory"));
    }
  });
}

// ---- messages

TEST_F(CudaQueuedCalls, MessagesOfAnySizeArriveInOrder) {
  const std::vector<std::size_t> counts = {1, 0, 1000, 3, 1'500'000, 70'000, 4'000'001};
  for (const int ranks : {2, 3}) {
    on_ranks(ranks, with_messages(), [&](Communicator& group, Communicator& host) {
      const int next = (group.rank() + 1) % ranks;
      const int previous = (group.rank() + ranks - 1) % ranks;
      std::vector<Floats> sent, received;
      for (const std::size_t count : counts) {
        sent.emplace_back(std::max<std::size_t>(count, 1));
        sent.back().fill(group.rank());
        received.emplace_back(std::max<std::size_t>(count, 1));
      }
      const auto ops = make_cuda_ops(0);
      host.barrier();  // loads libraries, which waits for running kernels
      for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < counts.size(); ++i) {
          const Data from(sent[i].data().bytes, counts[i], DType::kF32);
          const Data to(received[i].data().bytes, counts[i], DType::kF32);
          // One rank sends first, so that a message of many pieces finds its receiver.
          ops->in_order([&] {
            if (group.rank() == 0) group.send(from, next);
            group.receive(to, previous);
            if (group.rank() != 0) group.send(from, next);
          });
        }
      }
      ops->synchronize();
      EXPECT_EQ(group.failure(), std::nullopt);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const std::vector<float> got = received[i].get();
        for (std::size_t e = 0; e < counts[i]; ++e) {
          ASSERT_EQ(got[e], value_of(previous, e)) << "message " << i << ", element " << e;
        }
      }
    });
  }
}

// The buffer of a message may change as soon as it is sent, and is read when all before is done.
TEST_F(CudaQueuedCalls, MessagesAreInTheOrderOfOperations) {
  constexpr std::size_t kCount = 200'000;
  constexpr int kRounds = 30;
  on_ranks(2, with_messages(), [&](Communicator& group, Communicator& host) {
    const Floats one(kCount), two(kCount), buffer(kCount), all(kCount * kRounds);
    one.set(std::vector<float>(kCount, 1));
    two.set(std::vector<float>(kCount, 2));
    const auto ops = make_cuda_ops(0);
    host.barrier();  // loads libraries, which waits for running kernels
    for (int round = 0; round < kRounds; ++round) {
      ops->in_order([&] {
        const Floats& source = round % 2 == 0 ? one : two;
        if (group.rank() == 0) {
          memory_of(kGpu).copy(buffer.data().bytes, source.data().bytes, kCount * sizeof(float));
          group.send(buffer.data(), 1);
        } else {
          group.receive(buffer.data(), 0);
          memory_of(kGpu).copy(
              all.data().bytes + static_cast<std::size_t>(round) * kCount * sizeof(float),
              buffer.data().bytes, kCount * sizeof(float));
        }
      });
    }
    ops->synchronize();
    EXPECT_EQ(group.failure(), std::nullopt);
    if (group.rank() == 0) return;
    const std::vector<float> got = all.get();
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], i / kCount % 2 == 0 ? 1 : 2) << i;
    }
  });
}

TEST_F(CudaQueuedCalls, AMessageThatIsNotTheOneThatWasSentIsAnError) {
  on_ranks(2, with_messages(), [](Communicator& group, Communicator& host) {
    const Floats data(1000);
    const auto ops = make_cuda_ops(0);
    host.barrier();  // loads libraries, which waits for running kernels
    try {
      ops->in_order([&] {
        if (group.rank() == 0) return group.send(data.data(), 1);
        group.receive(Data(data.data().bytes, 700, DType::kF32), 0);
      });
      ops->synchronize();
    } catch (const Error&) {
    }
    if (group.rank() == 0) return;
    const auto failure = group.failure();
    ASSERT_TRUE(failure);
    EXPECT_THAT(failure->what(), HasSubstr("700"));
    EXPECT_THAT(failure->what(), HasSubstr("1000"));
  });
}

TEST_F(CudaQueuedCalls, ASenderThatDoesNotComeIsNamed) {
  DeviceCommunicatorOptions options = with_messages();
  options.timeout = std::chrono::milliseconds(500);
  on_ranks(2, options, [](Communicator& group, Communicator&) {
    if (group.rank() == 0) {
      EXPECT_TRUE(group.wait_for_failure(std::chrono::seconds(20)));
      return;
    }
    const Floats data(1000);
    const auto ops = make_cuda_ops(0);
    ops->in_order([&] { group.receive(data.data(), 0); });
    ops->synchronize();
    const auto failure = group.failure();
    ASSERT_TRUE(failure);
    EXPECT_THAT(failure->what(), HasSubstr("rank 0"));
  });
}

TEST_F(CudaQueuedCalls, TakeAsMuchMemoryAsTheySay) {
  for (const bool has_messages : {false, true}) {
    run_threads(2, [&](Communicator& world) {
      world.barrier();
      const std::size_t before = memory_in_use(kGpu);
      world.barrier();
      const auto group = make_device_communicator(world.split(0, world.rank()),
                                                  has_messages ? with_messages() : staged());
      world.barrier();
      EXPECT_EQ(memory_in_use(kGpu),
                before + 2 * device_communicator_bytes(!has_messages, has_messages));
      world.barrier();
    });
  }
}

}  // namespace
}  // namespace lockstep::queued_calls_test
