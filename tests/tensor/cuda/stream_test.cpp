// Streams and events of a GPU, by themselves and together with those of the CPU.
#include "lockstep/tensor/stream.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/tensor/buffer.h"
#include "tests/tensor/cuda/gpu.h"
#include "tests/tensor/refusal.h"

namespace lockstep {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::kGpu;

constexpr std::int64_t kCount = std::int64_t{4} << 20;  // of f32, so that copies take a while

class GpuStream : public testing::OnGpu<::testing::Test> {};

// Elements on the GPU.
struct Far {
  explicit Far(std::int64_t count = kCount)
      : buffer(static_cast<std::size_t>(count) * sizeof(float), kGpu),
        tensor(buffer.tensor(DType::kF32, {count})) {}
  explicit Far(std::vector<float> values) : Far(static_cast<std::int64_t>(values.size())) {
    copy(tensor, tensor_of(std::span(values)));
  }
  std::vector<float> values() const {
    std::vector<float> got(tensor.elements());
    copy(tensor_of(std::span(got)), tensor);
    return got;
  }

  Buffer buffer;
  Tensor tensor;
};

bool all_are(std::span<const float> values, float value) {
  return std::ranges::all_of(values, [value](float one) { return one == value; });
}

std::vector<float> filled(float value) { return std::vector<float>(kCount, value); }

TEST_F(GpuStream, KeepsTheOrderOfItsTasks) {
  std::vector<float> one = filled(1), two = filled(2), got = filled(0);
  const Far a, b;
  Stream stream(kGpu);
  EXPECT_EQ(stream.device(), kGpu);
  stream.run([&] { copy(a.tensor, tensor_of(std::span(one))); });
  stream.run([&] { copy(b.tensor, a.tensor); });
  stream.run([&] { copy(a.tensor, tensor_of(std::span(two))); });
  stream.run([&] { fill_zero(b.tensor.slice(0, 5)); });
  stream.run([&] { copy(tensor_of(std::span(got)), b.tensor); });
  stream.synchronize();
  EXPECT_TRUE(all_are(std::span(got).first(5), 0.0f));
  EXPECT_TRUE(all_are(std::span(got).subspan(5), 1.0f));
  EXPECT_TRUE(all_are(a.values(), 2.0f));
}

TEST_F(GpuStream, WaitsForTheEventOfAnother) {
  const Far a(filled(0)), b(filled(0)), ones(filled(1)), twos(filled(2));
  Stream first(kGpu), second(kGpu);
  for (int round = 0; round < 10; ++round) {
    const Far& source = round % 2 == 0 ? ones : twos;
    first.run([&] {
      for (int i = 0; i < 20; ++i) copy(a.tensor, source.tensor);
    });
    const Event written = first.record();
    second.wait(written);
    second.run([&] { copy(b.tensor, a.tensor); });
    const Event read = second.record();
    first.wait(read);  // before the next round writes
    if (round < 8) continue;
    second.synchronize();
    EXPECT_TRUE(written.done() && read.done());
    EXPECT_EQ(b.values(), source.values());
  }
  first.synchronize();
}

TEST_F(GpuStream, HasEventsThatAThreadCanWaitFor) {
  const Far a(filled(0)), ones(filled(1));
  Stream stream(kGpu);
  stream.run([&] { copy(a.tensor, ones.tensor); });
  const Event event = stream.record();
  event.wait();
  EXPECT_TRUE(event.done());
  EXPECT_EQ(event.await(), nullptr);
  EXPECT_TRUE(all_are(a.values(), 1.0f));
  EXPECT_TRUE(Event().done());
  stream.wait(Event());
  stream.synchronize();
}

TEST_F(GpuStream, SkipsWhatIsBehindAnErrorAndThenGoesOn) {
  const Far a(filled(0)), ones(filled(1));
  Stream stream(kGpu), other(kGpu);
  bool ran = false, other_ran = false;
  stream.run([] { fail(ErrorCode::kProtocol, "a task went wrong"); });
  stream.run([&] { ran = true; });
  const Event event = stream.record();
  other.wait(event);
  other.run([&] { other_ran = true; });
  EXPECT_THAT(error_of([&] { event.wait(); }).what(), HasSubstr("a task went wrong"));
  EXPECT_THAT(error_of([&] { stream.synchronize(); }).what(), HasSubstr("a task went wrong"));
  EXPECT_THAT(error_of([&] { other.synchronize(); }).what(), HasSubstr("a task went wrong"));
  EXPECT_FALSE(ran || other_ran);
  stream.run([&] { copy(a.tensor, ones.tensor); });
  stream.synchronize();
  other.synchronize();
  EXPECT_TRUE(all_are(a.values(), 1.0f));
}

TEST_F(GpuStream, IsNotSynchronizedByItsOwnTask) {
  Stream stream(kGpu);
  stream.run([&] { stream.synchronize(); });
  const Error error = error_of([&] { stream.synchronize(); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("asked its own stream"));
}

TEST_F(GpuStream, WaitsForTheCpuAndTheCpuForIt) {
  std::vector<float> values = filled(1), got = filled(0);
  const Far a(filled(0));
  Stream cpu, gpu(kGpu);
  std::atomic<bool> go = false;
  cpu.run([&] {
    go.wait(false);
    std::fill(values.begin(), values.end(), 3.0f);
  });
  const Event computed = cpu.record();
  std::thread releases([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    go = true;
    go.notify_all();
  });
  gpu.wait(computed);
  gpu.run([&] { copy(a.tensor, tensor_of(std::span(values))); });
  gpu.run([&] { copy(tensor_of(std::span(got)), a.tensor); });
  cpu.wait(gpu.record());
  bool all_there = false;
  cpu.run([&] { all_there = got.front() == 3.0f && got.back() == 3.0f; });
  cpu.synchronize();
  releases.join();
  EXPECT_TRUE(all_there);
}

TEST_F(GpuStream, TakesTasksOfManyThreads) {
  constexpr std::int64_t kEach = 1000;
  const Far a(std::vector<float>(4 * kEach, 0.0f));
  std::vector<float> one(kEach, 1.0f);
  Stream stream(kGpu);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const Tensor mine = a.tensor.slice(i * kEach, kEach);
      for (int round = 0; round < 50; ++round) {
        stream.run([mine] { fill_zero(mine); });
        stream.run([mine, &one] { copy(mine, tensor_of(std::span(one))); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream.synchronize();
  EXPECT_TRUE(all_are(a.values(), 1.0f));
}

TEST_F(GpuStream, FinishesWhatIsQueuedWhenItIsDestroyed) {
  const Far a(filled(0)), ones(filled(1));
  {
    Stream stream(kGpu);
    for (int i = 0; i < 50; ++i) stream.run([&] { copy(a.tensor, ones.tensor); });
  }
  EXPECT_TRUE(all_are(a.values(), 1.0f));
}

}  // namespace
}  // namespace lockstep
