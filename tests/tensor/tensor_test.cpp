// Shapes, devices, buffers and tensors.
#include "lockstep/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/tensor/device_memory.h"
#include "tests/tensor/refusal.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::refusal_of;

constexpr Device kCuda1{DeviceKind::kCuda, 1};
constexpr Device kNoSuchGpu{DeviceKind::kCuda, 63};
constexpr std::size_t kMiB = std::size_t{1} << 20;

std::uintptr_t address(const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data); }

TEST(Shape, CountsItsElementsAndReadsAsAList) {
  const Shape shape{4, 1024, 768};
  EXPECT_EQ(shape.dimensions(), 3);
  EXPECT_EQ(shape.elements(), std::size_t{4} * 1024 * 768);
  EXPECT_EQ(shape[0], 4);
  EXPECT_EQ(shape[2], 768);
  EXPECT_EQ(shape.text(), "[4, 1024, 768]");
  EXPECT_THAT(shape.extents(), ElementsAre(4, 1024, 768));
  EXPECT_EQ(Shape({1, 2, 3, 4, 5, 6}).elements(), 720u);
}

TEST(Shape, WithoutDimensionsHasOneElementAndWithAZeroNone) {
  EXPECT_EQ(Shape().elements(), 1u);
  EXPECT_EQ(Shape().text(), "[]");
  EXPECT_EQ(Shape({0}).elements(), 0u);
  EXPECT_EQ(Shape({7, 0, 3}).elements(), 0u);
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_EQ(Shape({huge, huge, 0}).elements(), 0u);
}

TEST(Shape, IsEqualWhereDimensionsAndExtentsAre) {
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
  EXPECT_NE(Shape({2, 3}), Shape({3, 2}));
  EXPECT_NE(Shape({2, 3}), Shape({2, 3, 1}));
  EXPECT_NE(Shape({0}), Shape({0, 0}));
}

TEST(Shape, RefusesWhatCannotBe) {
  const std::int64_t huge = std::int64_t{1} << 32;
  EXPECT_THAT(refusal_of([] { Shape({2, -1}); }), HasSubstr("[2, -1] has an extent of -1"));
  EXPECT_THAT(refusal_of([] { Shape({1, 1, 1, 1, 1, 1, 1}); }), HasSubstr("at most 6"));
  EXPECT_THAT(refusal_of([&] { Shape({huge, huge}); }), HasSubstr("more elements than"));
  EXPECT_EQ(Shape({huge, huge / 2 - 1}).elements(), std::size_t{huge} * (huge / 2 - 1));
  EXPECT_THAT(refusal_of([] { Shape({2, 3})[2]; }), HasSubstr("dimension 2 of the shape [2, 3]"));
  EXPECT_THAT(refusal_of([] { Shape()[0]; }), HasSubstr("it has 0 dimensions"));
  EXPECT_THAT(refusal_of([] { Shape({2})[-1]; }), HasSubstr("dimension -1"));
}

TEST(Device, NamesAreParsedBack) {
  for (const Device device : {Device{}, Device{DeviceKind::kCuda, 0}, kCuda1}) {
    EXPECT_EQ(parse_device(name(device)), device) << name(device);
  }
  EXPECT_EQ(name(kCuda1), "cuda:1");
  EXPECT_EQ(parse_device("cuda"), (Device{DeviceKind::kCuda, 0}));
}

TEST(Device, OtherNamesAreRefused) {
  for (const char* text :
       {"", "gpu", "cpu:0", "CPU", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:99999999999"}) {
    EXPECT_THAT(refusal_of([&] { parse_device(text); }), HasSubstr("is not a device")) << text;
  }
}

TEST(Device, AGpuThatIsNotThereSaysWhy) {
  for (const auto& use : {+[] { Buffer(64, kNoSuchGpu); }, +[] { Buffer(0, kNoSuchGpu); },
                          +[] { memory_in_use(kNoSuchGpu); }}) {
    const Error error = error_of(use);
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("cuda:63 is not available: "));
  }
  EXPECT_EQ(error_of([] {
              Buffer(1, Device{DeviceKind::kCpu, 1});
            }).code(),
            ErrorCode::kUnsupported);
}

TEST(Buffer, IsAlignedAndWritable) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{64},
                                  std::size_t{4097}, 2 * kMiB - 1, 2 * kMiB, 5 * kMiB + 13}) {
    const Buffer buffer(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(address(buffer.data()) % (bytes < 2 * kMiB ? 64 : 2 * kMiB), 0u) << bytes;
    std::memset(buffer.data(), 0x5a, bytes);
    EXPECT_EQ(buffer.data()[bytes - 1], std::byte{0x5a});
  }
}

TEST(Buffer, OfNoBytesHasNoAddress) {
  const std::size_t before = memory_in_use(Device{});
  const Buffer buffer(0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.bytes(), 0u);
  EXPECT_EQ(memory_in_use(Device{}), before);
  EXPECT_EQ(buffer.tensor(DType::kF32, {3, 0}).elements(), 0u);
}

TEST(Buffer, IsCountedToTheByteAlsoThroughMoves) {
  const std::size_t before = memory_in_use(Device{});
  reset_peak_memory(Device{});
  {
    Buffer a(1000);
    Buffer b(3 * kMiB + 1);
    EXPECT_EQ(memory_in_use(Device{}), before + 1000 + 3 * kMiB + 1);
    std::byte* const data = a.data();
    Buffer c(std::move(a));
    EXPECT_EQ(c.data(), data);
    EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(a.bytes(), 0u);
    EXPECT_EQ(memory_in_use(Device{}), before + 1000 + 3 * kMiB + 1);
    b = std::move(c);
    EXPECT_EQ(b.data(), data);
    EXPECT_EQ(memory_in_use(Device{}), before + 1000);
    Buffer& same = b;
    b = std::move(same);
    EXPECT_EQ(b.data(), data);
    EXPECT_EQ(peak_memory(Device{}), before + 1000 + 3 * kMiB + 1);
    reset_peak_memory(Device{});
    EXPECT_EQ(peak_memory(Device{}), before + 1000);
    b = Buffer();
    EXPECT_EQ(memory_in_use(Device{}), before);
  }
  EXPECT_EQ(memory_in_use(Device{}), before);
  EXPECT_EQ(peak_memory(Device{}), before + 1000);
}

TEST(Buffer, ManyThreadsAreCountedExactly) {
  const std::size_t before = memory_in_use(Device{});
  reset_peak_memory(Device{});
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      Buffer kept(1000 + t);
      for (std::size_t i = 1; i < 500; ++i) kept = Buffer(i * (t + 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory_in_use(Device{}), before);
  EXPECT_GE(peak_memory(Device{}), before + 4 * 499);
  EXPECT_LE(peak_memory(Device{}), before + 2 * (1 + 2 + 3 + 4) * 1000);
}

TEST(Buffer, WithoutRoomSaysWhatWasAskedForAndWhatIsInUse) {
  const Buffer held(3 * kMiB);
  const std::size_t before = memory_in_use(Device{});
  reset_peak_memory(Device{});
  for (const std::size_t bytes : {std::size_t{1} << 60, std::numeric_limits<std::size_t>::max()}) {
    const Error error = error_of([&] { Buffer unused(bytes); });
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(bytes) + " bytes) on cpu"));
    EXPECT_THAT(error.what(), HasSubstr("already uses"));
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(before)));
  }
  EXPECT_EQ(memory_in_use(Device{}), before);
  EXPECT_EQ(peak_memory(Device{}), before);
}

TEST(Buffer, HandsOutTensorsThatFit) {
  const Buffer buffer(100);
  const Tensor tensor = buffer.tensor(DType::kF32, {2, 3}, 8);
  EXPECT_EQ(tensor.data(), buffer.data() + 8);
  EXPECT_EQ(tensor.bytes(), 24u);
  EXPECT_EQ(buffer.tensor(DType::kU8, {100}).bytes(), 100u);
  EXPECT_EQ(buffer.tensor(DType::kU8, {0}, 100).bytes(), 0u);
  EXPECT_THAT(refusal_of([&] {
                buffer.tensor(DType::kF32, {2, 13});
              }),
              HasSubstr("f32 tensor of shape [2, 13] at byte 0 needs 104 bytes, but the buffer has "
                        "100"));
  EXPECT_THAT(refusal_of([&] { buffer.tensor(DType::kU8, {0}, 101); }), HasSubstr("at byte 101"));
  EXPECT_THAT(refusal_of([&] { buffer.tensor(DType::kF64, {1}, 4); }),
              HasSubstr("4 bytes after a multiple of 8"));
}

class Numbers : public ::testing::Test {
 protected:
  void SetUp() override { std::iota(values_.begin(), values_.end(), 0.0f); }

  std::vector<float> values_ = std::vector<float>(24);
  Tensor tensor_ = tensor_of(std::span(values_), {4, 3, 2});
};

TEST_F(Numbers, AreReadAsTheirTypeOnly) {
  EXPECT_EQ(tensor_.as<float>().data(), values_.data());
  EXPECT_EQ(tensor_.as<const float>().size(), 24u);
  EXPECT_THAT(refusal_of([&] { tensor_.as<BFloat16>(); }),
              HasSubstr("cannot read elements of bf16: the tensor is f32 [4, 3, 2] on cpu"));
  const Tensor far(tensor_.data(), DType::kF32, {24}, kCuda1);
  EXPECT_THAT(refusal_of([&] { far.as<float>(); }), HasSubstr("f32 [24] on cuda:1; copy it"));
}

TEST_F(Numbers, KeepTheirOrderInAnotherShape) {
  const Tensor flat = tensor_.reshaped({2, 12});
  EXPECT_EQ(flat.data(), tensor_.data());
  EXPECT_EQ(flat.row(1).as<float>()[0], 12.0f);
  EXPECT_THAT(
      refusal_of([&] {
        tensor_.reshaped({5, 5});
      }),
      HasSubstr("[4, 3, 2] has 24 elements and cannot take the shape [5, 5], which has 25"));
}

TEST_F(Numbers, AreSlicedAlongTheFirstDimension) {
  const Tensor middle = tensor_.slice(1, 2);
  EXPECT_EQ(middle.shape(), Shape({2, 3, 2}));
  EXPECT_EQ(middle.as<float>().front(), 6.0f);
  EXPECT_EQ(middle.as<float>().back(), 17.0f);
  EXPECT_EQ(tensor_.slice(4, 0).shape(), Shape({0, 3, 2}));
  EXPECT_EQ(tensor_.slice(0, 4).shape(), tensor_.shape());
  EXPECT_EQ(tensor_.row(3).shape(), Shape({3, 2}));
  EXPECT_THAT(tensor_.row(3).row(1).as<float>(), ElementsAre(20.0f, 21.0f));
  EXPECT_THAT(tensor_.row(3).row(1).row(1).as<float>(), ElementsAre(21.0f));
  EXPECT_EQ(tensor_.row(0).row(0).row(0).shape(), Shape());
}

TEST_F(Numbers, OutsideTheFirstDimensionAreRefused) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {-1, 1}, {0, -1}, {0, 5}, {4, 1}, {5, 0}, {1, most}, {most, 1}}) {
    EXPECT_THAT(refusal_of([&, f = first, c = count] { tensor_.slice(f, c); }),
                HasSubstr("does not lie in dimension 0 of the shape [4, 3, 2]"));
  }
  EXPECT_THAT(refusal_of([&] { tensor_.row(4); }), HasSubstr("a slice of 1 from 4 on"));
  EXPECT_THAT(refusal_of([&] { tensor_.row(0).row(0).row(0).row(0); }), HasSubstr("shape []"));
}

TEST_F(Numbers, AreCopiedAndCleared) {
  std::vector<float> other(12, -1.0f);
  const Tensor to = tensor_of(std::span(other));
  copy(to, tensor_.slice(2, 2));
  EXPECT_EQ(other.front(), 12.0f);
  EXPECT_EQ(other.back(), 23.0f);
  fill_zero(to.slice(1, 2));
  EXPECT_THAT(to.slice(0, 4).as<float>(), ElementsAre(12.0f, 0.0f, 0.0f, 15.0f));
  copy(tensor_.slice(1, 3), tensor_.slice(0, 3));  // they overlap
  EXPECT_EQ(values_[6], 0.0f);
  EXPECT_EQ(values_[23], 17.0f);
}

TEST_F(Numbers, AreNotCopiedIntoOthers) {
  std::vector<std::int32_t> integers(24);
  EXPECT_THAT(refusal_of([&] { copy(tensor_of(std::span(integers)), tensor_); }),
              HasSubstr("from f32 [4, 3, 2] on cpu (24 elements) to i32 [24] on cpu (24)"));
  EXPECT_THAT(refusal_of([&] { copy(tensor_, tensor_.slice(0, 3)); }), HasSubstr("(18 elements)"));
  const Tensor far(tensor_.data(), DType::kF32, {24}, kNoSuchGpu);
  EXPECT_EQ(error_of([&] { copy(far, tensor_); }).code(), ErrorCode::kUnsupported);
  EXPECT_EQ(error_of([&] { copy(tensor_, far); }).code(), ErrorCode::kUnsupported);
  EXPECT_EQ(error_of([&] { fill_zero(far); }).code(), ErrorCode::kUnsupported);
}

TEST(Tensor, OfNothingTakesPartInEverything) {
  const Tensor nothing;
  EXPECT_EQ(nothing.shape(), Shape({0}));
  EXPECT_THAT(nothing.as<float>(), IsEmpty());
  EXPECT_EQ(nothing.reshaped({3, 0, 5}).slice(2, 1).bytes(), 0u);
  EXPECT_EQ(nothing.reshaped({3, 0}).row(2).shape(), Shape({0}));
  fill_zero(nothing);
  copy(nothing, nothing.reshaped({0, 7}));
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_EQ(Tensor(nullptr, DType::kF64, {0, huge, huge}).slice(0, 0).bytes(), 0u);
}

TEST(Tensor, NeedsMemoryForItsElements) {
  EXPECT_THAT(refusal_of([] { Tensor(nullptr, DType::kF16, {2}); }),
              HasSubstr("f16 tensor of shape [2] needs memory, but has no address"));
  EXPECT_THAT(refusal_of([] { Tensor::bytes_of(DType::kF64, {std::int64_t{1} << 60}); }),
              HasSubstr("larger than any memory"));
  EXPECT_EQ(Tensor::bytes_of(DType::kU8, {std::int64_t{1} << 60}), std::size_t{1} << 60);
}

TEST(Tensor, OfEveryTypeKnowsItsBytes) {
  const Buffer buffer(64);
  for (const DType dtype : kAllDTypes) {
    const Tensor tensor = buffer.tensor(dtype, {1, 3, 1});
    EXPECT_EQ(tensor.bytes(), 3 * size_of(dtype)) << name(dtype);
    EXPECT_EQ(tensor.reshaped({3}).row(2).data(), buffer.data() + 2 * size_of(dtype));
    with_type(dtype, [&](auto zero) { EXPECT_EQ(tensor.as<decltype(zero)>().size(), 3u); });
  }
}

}  // namespace
}  // namespace lockstep
