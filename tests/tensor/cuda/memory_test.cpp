// Memory of a GPU: allocations, copies in all directions, and what a GPU says of itself.
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
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
using testing::refusal_of;
using ::testing::StartsWith;

using Bytes = std::vector<std::byte>;

class GpuMemory : public testing::OnGpu<::testing::Test> {};

Bytes pattern(std::size_t bytes, unsigned seed = 1) {
  Bytes made(bytes);
  unsigned state = seed * 2654435761u + 1;
  for (std::byte& byte : made) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return made;
}

Tensor view(Bytes& bytes) {
  return {bytes.data(), DType::kU8, {static_cast<std::int64_t>(bytes.size())}};
}

Tensor part(const Buffer& buffer, std::size_t first, std::size_t count) {
  return buffer.tensor(DType::kU8, {static_cast<std::int64_t>(count)}, first);
}

Bytes content(const Buffer& buffer) {
  Bytes bytes(buffer.bytes());
  copy(view(bytes), part(buffer, 0, bytes.size()));
  return bytes;
}

Buffer on_gpu(Bytes& bytes) {
  Buffer buffer(bytes.size(), kGpu);
  copy(part(buffer, 0, bytes.size()), view(bytes));
  return buffer;
}

TEST(Cuda, IsThereOrSaysWhyNot) {
  EXPECT_EQ(cuda_is_available(), why_no_cuda().empty());
  if (!cuda_is_available()) {
    const Error error = error_of([] { cuda_memory(0); });
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), StartsWith("cuda:0 is not available: "));
    EXPECT_THAT(error.what(), HasSubstr(why_no_cuda()));
  } else {
    EXPECT_FALSE(cuda_devices().empty());
  }
}

TEST_F(GpuMemory, OfAGpuThatIsNotThereIsRefused) {
  const auto count = static_cast<int>(cuda_devices().size());
  const Error error = error_of([&] { Buffer(1, Device{DeviceKind::kCuda, count}); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("this process sees"));
}

TEST_F(GpuMemory, IsDescribed) {
  for (const GpuInfo& gpu : cuda_devices()) {
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_GE(gpu.capability, 10);
    EXPECT_GT(gpu.multiprocessors, 0);
    EXPECT_GT(gpu.total_bytes, std::size_t{1} << 28);
    EXPECT_THAT(gpu.runtime, StartsWith("13."));
    std::printf("cuda:%d is a %s of capability %d, driver for CUDA %s, runtime %s, cuBLASLt %s\n",
                gpu.index, gpu.name.c_str(), gpu.capability, gpu.driver.c_str(),
                gpu.runtime.c_str(), gpu.cublas_lt.c_str());
  }
  const std::size_t free = free_cuda_memory(0);
  EXPECT_GT(free, 0u);
  EXPECT_LE(free, cuda_devices().front().total_bytes);
}

TEST_F(GpuMemory, IsAlignedAndCounted) {
  const std::size_t before = memory_in_use(kGpu);
  {
    std::vector<Buffer> held;
    std::size_t total = 0;
    for (const std::size_t bytes : {1, 63, 64, 4095, 4096, 4097, 12288, 100000, (2 << 20) + 1}) {
      const Buffer& buffer = held.emplace_back(bytes, kGpu);
      total += bytes;
      const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
      EXPECT_EQ(address % (bytes < Buffer::kPage ? Buffer::kAlignment : Buffer::kPage), 0u);
      EXPECT_EQ(memory_in_use(kGpu), before + total);
    }
    // They do not lie on each other.
    for (std::size_t i = 0; i < held.size(); ++i) {
      Bytes bytes = pattern(held[i].bytes(), static_cast<unsigned>(i));
      copy(part(held[i], 0, bytes.size()), view(bytes));
    }
    for (std::size_t i = 0; i < held.size(); ++i) {
      EXPECT_EQ(content(held[i]), pattern(held[i].bytes(), static_cast<unsigned>(i))) << i;
    }
    EXPECT_GE(peak_memory(kGpu), before + total);
  }
  EXPECT_EQ(memory_in_use(kGpu), before);
}

TEST_F(GpuMemory, ThatIsNotThereIsAnErrorWithNumbers) {
  const Error error = error_of([] { Buffer(std::size_t{1} << 50, kGpu); });
  EXPECT_EQ(error.code(), ErrorCode::kSystem);
  EXPECT_THAT(error.what(), HasSubstr("on cuda:0, where this process already uses"));
  Bytes small = pattern(100);
  EXPECT_EQ(content(on_gpu(small)), small);  // and nothing is broken
}

TEST_F(GpuMemory, KeepsWhatIsCopiedThereAndBack) {
  for (const std::size_t bytes : {1, 3, 255, 4096, (1 << 20) + 3, 48 << 20}) {
    Bytes sent = pattern(bytes);
    EXPECT_TRUE(content(on_gpu(sent)) == sent) << bytes;
  }
}

TEST_F(GpuMemory, IsCopiedAtOddPlaces) {
  Bytes bytes = pattern(1000), other = pattern(1000, 2), back(500);
  const Buffer from = on_gpu(bytes), to = on_gpu(other);
  copy(part(to, 7, 333), part(from, 13, 333));
  std::copy_n(bytes.begin() + 13, 333, other.begin() + 7);
  EXPECT_EQ(content(to), other);
  copy(view(back), part(to, 1, 500));
  EXPECT_TRUE(std::equal(back.begin(), back.end(), other.begin() + 1));
}

TEST_F(GpuMemory, OverlappingIsCopiedAsIfThereWereACopyBetween) {
  struct Move {
    std::size_t bytes, from, to, count;
  };
  constexpr std::size_t kLarge = 80 << 20;  // more than is moved at a time
  for (const Move& move :
       {Move{100, 0, 1, 99}, Move{100, 1, 0, 99}, Move{100, 10, 10, 50}, Move{100, 0, 50, 50},
        Move{100, 0, 49, 50}, Move{4096, 7, 1000, 3000}, Move{kLarge, 0, 5, kLarge - 5},
        Move{kLarge, 5, 0, kLarge - 5}, Move{kLarge, 0, 40 << 20, 40 << 20}}) {
    Bytes bytes = pattern(move.bytes);
    const Buffer buffer = on_gpu(bytes);
    copy(part(buffer, move.to, move.count), part(buffer, move.from, move.count));
    std::memmove(bytes.data() + move.to, bytes.data() + move.from, move.count);
    EXPECT_TRUE(content(buffer) == bytes) << move.from << " to " << move.to << ", " << move.count;
  }
}

TEST_F(GpuMemory, IsFilledWithZerosWhereItIsAskedFor) {
  Bytes bytes = pattern(1000);
  const Buffer buffer = on_gpu(bytes);
  fill_zero(part(buffer, 3, 500));
  std::fill_n(bytes.begin() + 3, 500, std::byte{0});
  EXPECT_EQ(content(buffer), bytes);
  fill_zero(part(buffer, 3, 0));
}

TEST_F(GpuMemory, IsUsedByManyThreads) {
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([i, &right] {
      for (unsigned round = 0; round < 20; ++round) {
        Bytes bytes = pattern(5000 + i, i * 100 + round);
        right[i] += content(on_gpu(bytes)) == bytes ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::accumulate(right.begin(), right.end(), 0), 80);
}

TEST_F(GpuMemory, CannotBeReadByTheCpu) {
  const Buffer buffer(64, kGpu);
  EXPECT_THAT(refusal_of([&] { buffer.tensor(DType::kF32, {16}).as<float>(); }),
              HasSubstr("the CPU cannot read the tensor f32 [16] on cuda:0"));
}

TEST_F(GpuMemory, IsCopiedFromAndToPinnedMemory) {
  const std::size_t in_use = memory_in_use(kGpu);
  PinnedBuffer sent(10000), received(10000);
  EXPECT_EQ(memory_in_use(kGpu), in_use);
  for (std::size_t i = 0; i < sent.bytes(); ++i) sent.data()[i] = static_cast<std::byte>(i * 7);
  const Shape all{10000};
  const Buffer buffer(10000, kGpu);
  copy(buffer.tensor(DType::kU8, all), sent.tensor(DType::kU8, all));
  copy(received.tensor(DType::kU8, all), buffer.tensor(DType::kU8, all));
  EXPECT_EQ(std::memcmp(sent.data(), received.data(), sent.bytes()), 0);
  PinnedBuffer moved = std::move(sent);
  EXPECT_EQ(sent.data(), nullptr);
  EXPECT_EQ(moved.bytes(), 10000u);
  EXPECT_THAT(refusal_of([&] { moved.tensor(DType::kF64, {1251}); }),
              HasSubstr("the pinned buffer has 10000"));
  EXPECT_EQ(PinnedBuffer(0).tensor(DType::kF32, {0}).bytes(), 0u);
}

}  // namespace
}  // namespace lockstep
