// The codecs of blocks against plain models of each block.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/math/half.h"
#include "lockstep/parallel/compression/kernels/kernels.h"
#include "tests/parallel/compression/gradients.h"

namespace lockstep::parallel {
namespace {

using testing::decoded;
using testing::encoded;
using testing::kOddSizes;
using testing::make_gradients;

std::vector<float> round_trip(Compression compression, std::span<const float> values) {
  const auto codec = make_codec({.compression = compression});
  return decoded(*codec, encoded(*codec, values, {}, 0), values.size(), 0);
}

// f(block of values, block of what they became) for each block.
template <class F>
void for_blocks(std::span<const float> values, std::span<const float> out, F&& f) {
  for (std::size_t first = 0; first < values.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, values.size() - first);
    f(values.subspan(first, count), out.subspan(first, count));
  }
}

TEST(Bf16Codec, RoundsEveryElementToNearestEven) {
  for (const std::size_t size : kOddSizes) {
    const auto values = make_gradients(size, 11);
    const auto out = round_trip(Compression::kBf16, values);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(out[i], to_float(to_bfloat16(values[i])));
  }
}

TEST(F16Codec, IsAsPreciseAsAHalfInRangeAtAnySize) {
  for (const float size : {1e-30f, 1.0f, 1e5f, 1e37f}) {
    auto values = make_gradients(1000, 12);
    for (float& x : values) x *= size / 0.03f;
    const auto out = round_trip(Compression::kF16, values);
    for_blocks(values, out, [](std::span<const float> block, std::span<const float> became) {
      const float smallest_step = testing::largest_magnitude_of(block) * 0x1p-38f;
      for (std::size_t i = 0; i < block.size(); ++i) {
        ASSERT_NEAR(became[i], block[i], std::max(std::fabs(block[i]) * 0x1p-11f, smallest_step));
      }
    });
  }
}

void expect_nearest_of_even_steps(Compression compression, float most) {
  for (const std::size_t size : kOddSizes) {
    const auto values = make_gradients(size, 13);
    const auto out = round_trip(compression, values);
    for_blocks(values, out, [&](std::span<const float> block, std::span<const float> became) {
      const float step = testing::largest_magnitude_of(block) / most;
      for (std::size_t i = 0; i < block.size(); ++i) {
        const float steps = std::nearbyint(became[i] / step);
        ASSERT_LE(std::fabs(steps), most);
        ASSERT_NEAR(became[i], steps * step, 1e-5f * most / 127 * step);
        ASSERT_LE(std::fabs(became[i] - block[i]), 0.5001f * step);
      }
    });
  }
}

TEST(Int8Codec, TakesTheNearestOfEvenStepsToTheLargestOfABlock) {
  expect_nearest_of_even_steps(Compression::kInt8, 127);
}

TEST(Int4Codec, TakesTheNearestOfSevenStepsToTheLargestOfABlock) {
  expect_nearest_of_even_steps(Compression::kInt4, 7);
}

// Two elements of a byte are neighbours by half a block; a block that is not full is cut off.
TEST(Int4Codec, LaysTwoElementsIntoAByte) {
  const auto codec = make_codec({.compression = Compression::kInt4});
  EXPECT_EQ(codec->bytes(0), 0u);
  EXPECT_EQ(codec->bytes(1), 5u);
  EXPECT_EQ(codec->bytes(64), 68u);
  EXPECT_EQ(codec->bytes(65), 68u);
  EXPECT_EQ(codec->bytes(128), 68u);
  EXPECT_EQ(codec->bytes(129), 73u);
  std::vector<float> values(128, 0.0f);
  values[0] = 7;
  values[1] = -7;
  values[64] = -3;
  values[127] = 2;
  const auto payload = encoded(*codec, values, {}, 0);
  EXPECT_EQ(std::to_integer<int>(payload[4]), 0xd7);   // -3 and 7
  EXPECT_EQ(std::to_integer<int>(payload[5]), 0x09);   // 0 and -7
  EXPECT_EQ(std::to_integer<int>(payload[67]), 0x20);  // 2 and 0
  EXPECT_EQ(decoded(*codec, payload, 128, 0), values);
}

TEST(OnebitCodec, SendsTheMeanOfEachSign) {
  for (const std::size_t size : kOddSizes) {
    const auto values = make_gradients(size, 14);
    const auto out = round_trip(Compression::kOnebit, values);
    for_blocks(values, out, [](std::span<const float> block, std::span<const float> became) {
      for (const bool negative : {false, true}) {
        double sum = 0;
        double count = 0;
        for (const float x : block) {
          sum += std::signbit(x) == negative ? static_cast<double>(x) : 0;
          count += std::signbit(x) == negative;
        }
        for (std::size_t i = 0; i < block.size(); ++i) {
          if (std::signbit(block[i]) != negative) continue;
          ASSERT_NEAR(became[i], sum / count, 0.004 * std::fabs(sum / count));
        }
      }
    });
  }
}

// Every pattern of halves, and floats around each rounding.
TEST(CompressionKernels, ConvertHalvesAsTheirTypeDoes) {
  const CompressionKernels& kernels = compression_kernels();
  std::vector<Half> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> floats(halves.size());
  const auto as_bytes = [&] { return reinterpret_cast<std::byte*>(halves.data()); };
  kernels.widen_halves(as_bytes(), floats.data(), floats.size());
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const float expected = to_float(halves[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(floats[i]));
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]), std::bit_cast<std::uint32_t>(expected));
    }
  }
  for (const std::uint32_t offset : {0u, 0xfffu, 0x1000u, 0x1001u}) {
    std::vector<float> near(floats.size() - 1);
    for (std::size_t i = 0; i < near.size(); ++i) {
      near[i] = std::bit_cast<float>(
          std::bit_cast<std::uint32_t>(to_float(Half{static_cast<std::uint16_t>(i)})) + offset);
    }
    kernels.narrow_to_halves(near.data(), as_bytes(), near.size());
    for (std::size_t i = 0; i < near.size(); ++i) {
      if (std::isnan(near[i])) {
        ASSERT_TRUE(std::isnan(to_float(halves[i])));
      } else {
        ASSERT_EQ(halves[i].bits, to_half(near[i]).bits) << near[i];
      }
    }
  }
}

TEST(CompressionKernels, OfAllInstructionSetsGiveTheSameBits) {
  const CompressionKernels& plain = compression_kernels(Isa::kScalar);
  for (const Isa isa : available_isas()) {
    const CompressionKernels& kernels = compression_kernels(isa);
    for (const std::size_t size : {1, 129, 5000}) {
      auto values = make_gradients(size, 15);
      for (std::size_t i = 0; i < size; i += 7) values[i] *= 1e-37f;
      for (const auto format :
           {&CompressionKernels::bf16, &CompressionKernels::f16, &CompressionKernels::int8,
            &CompressionKernels::int4, &CompressionKernels::onebit}) {
        auto residual = make_gradients(size, 16);
        auto plain_residual = residual;
        std::vector<std::byte> payload(size * 4 + 32);
        auto plain_payload = payload;
        (kernels.*format).encode(values.data(), residual.data(), payload.data(), size);
        (plain.*format).encode(values.data(), plain_residual.data(), plain_payload.data(), size);
        EXPECT_EQ(payload, plain_payload) << name(isa);
        EXPECT_EQ(residual, plain_residual) << name(isa);
        auto sums = values;
        auto plain_sums = values;
        (kernels.*format).decode(payload.data(), sums.data(), size, true);
        (plain.*format).decode(payload.data(), plain_sums.data(), size, true);
        EXPECT_EQ(sums, plain_sums) << name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
