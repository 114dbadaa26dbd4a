// What every codec promises, over odd sizes.
#include "lockstep/parallel/compression/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "tests/parallel/compression/gradients.h"

namespace lockstep::parallel {
namespace {

using testing::all_finite;
using testing::are_all;
using testing::decoded;
using testing::encoded;
using ::testing::HasSubstr;
using testing::kOddSizes;
using testing::largest_magnitude_of;
using testing::make_gradients;

constexpr std::uint64_t kSeed = 77;

class EveryCodec : public ::testing::TestWithParam<Compression> {
 protected:
  std::unique_ptr<Codec> codec_ = make_codec({.compression = GetParam(), .ratio = 0.01});
};
INSTANTIATE_TEST_SUITE_P(Compression, EveryCodec, ::testing::ValuesIn(kAllCompressions),
                         [](const auto& instance) { return std::string(name(instance.param)); });

TEST_P(EveryCodec, SaysInPayloadAndResidualTogetherAllThereIs) {
  for (const std::size_t size : kOddSizes) {
    const auto values = make_gradients(size, 1);
    const auto before = make_gradients(size, 2);
    auto residual = before;
    const auto payload = encoded(*codec_, values, residual, kSeed);
    const auto out = decoded(*codec_, payload, size, kSeed);
    for (std::size_t i = 0; i < size; ++i) {
      const float sum = values[i] + before[i];
      ASSERT_NEAR(out[i] + residual[i], sum, 1e-6f * (std::fabs(sum) + std::fabs(out[i])))
          << "element " << i << " of " << size;
    }
  }
}

TEST_P(EveryCodec, WithoutResidualEncodesTheValuesAlone) {
  for (const std::size_t size : kOddSizes) {
    const auto values = make_gradients(size, 3);
    std::vector<float> residual(size, 0.0f);
    EXPECT_EQ(encoded(*codec_, values, residual, kSeed), encoded(*codec_, values, {}, kSeed))
        << size;
  }
}

TEST_P(EveryCodec, AddsWhatItDecodes) {
  for (const std::size_t size : kOddSizes) {
    const auto payload = encoded(*codec_, make_gradients(size, 4), {}, kSeed);
    const auto out = decoded(*codec_, payload, size, kSeed);
    auto sums = make_gradients(size, 5);
    auto expected = sums;
    for (std::size_t i = 0; i < size; ++i) expected[i] += out[i];
    codec_->decode_add(payload, sums, kSeed);
    EXPECT_EQ(sums, expected) << size;
  }
}

TEST_P(EveryCodec, ClearsWhatAPayloadSaysAndNothingElse) {
  for (const std::size_t size : kOddSizes) {
    const auto values = make_gradients(size, 8);
    std::vector<float> residual(size, 0.0f);
    const auto payload = encoded(*codec_, values, residual, kSeed);
    std::vector<float> averages(size, 3.0f);
    codec_->clear_sent(payload, averages, kSeed);
    const bool is_sparse = GetParam() == Compression::kTopk || GetParam() == Compression::kRandomk;
    const auto out = decoded(*codec_, payload, size, kSeed);
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(averages[i], is_sparse && out[i] == 0 ? 3.0f : 0.0f) << i << " of " << size;
    }
  }
}

TEST_P(EveryCodec, ClearsWhatIsNotFiniteWhereAPayloadTellsOfIt) {
  std::vector<float> values = make_gradients(5000, 9);
  values[17] = std::numeric_limits<float>::infinity();
  for (std::size_t i = 100; i < 400; ++i) values[i] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> residual(values.size(), 0.0f);
  const auto payload = encoded(*codec_, values, residual, kSeed);
  codec_->clear_sent(payload, values, kSeed);
  EXPECT_TRUE(all_finite(values));
}

TEST_P(EveryCodec, SendsZerosAsZeros) {
  for (const std::size_t size : kOddSizes) {
    std::vector<float> residual(size, 0.0f);
    const auto payload = encoded(*codec_, std::vector<float>(size, 0.0f), residual, kSeed);
    EXPECT_TRUE(are_all(decoded(*codec_, payload, size, kSeed), 0.0f)) << size;
    EXPECT_TRUE(are_all(residual, 0.0f)) << size;
  }
}

TEST_P(EveryCodec, KeepsTheSmallestAndTheLargestNumbers) {
  for (const float size : {1e-45f, 1e-40f, 1.5e-38f, 1e-36f, 1e30f, 1e36f}) {
    std::vector<float> values(300);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = i % 2 == 0 ? size : -size / static_cast<float>(i % 3 + 1);
    }
    auto residual = std::vector<float>(values.size(), 0.0f);
    const auto out = decoded(*codec_, encoded(*codec_, values, residual, kSeed), 300, kSeed);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(out[i] + residual[i], values[i], 1e-6f * size) << size << ", element " << i;
      ASSERT_LE(std::fabs(out[i]), 1.01f * size);
    }
  }
}

TEST_P(EveryCodec, LetsNoInfinityOrNanPassUnseen) {
  const float specials[] = {
      std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
      std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::signaling_NaN()};
  for (const std::size_t size : {1, 17, 128, 257, 5000}) {
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
      for (const float special : specials) {
        auto values = make_gradients(size, 6);
        std::vector<float> residual(size, 0.0f);
        values[at] = special;
        EXPECT_FALSE(all_finite(decoded(*codec_, encoded(*codec_, values, {}, 1), size, 1)));
        const auto out = decoded(*codec_, encoded(*codec_, values, residual, 1), size, 1);
        EXPECT_FALSE(all_finite(out)) << special << " at " << at << " of " << size;
        EXPECT_TRUE(all_finite(residual)) << special << " at " << at << " of " << size;
        // The next step is as if nothing had been.
        const auto next = make_gradients(size, 7);
        EXPECT_TRUE(all_finite(decoded(*codec_, encoded(*codec_, next, residual, 2), size, 2)));
      }
    }
  }
}

TEST_P(EveryCodec, SurvivesNothingButNans) {
  std::vector<float> residual(5000, 0.0f);
  const std::vector<float> values(5000, std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(all_finite(decoded(*codec_, encoded(*codec_, values, residual, 1), 5000, 1)));
  EXPECT_TRUE(are_all(residual, 0.0f));
}

// The sum over T steps differs from T times the gradient by the residual, which does not grow.
TEST_P(EveryCodec, SendsEverythingSoonerOrLater) {
  const auto codec = make_codec({.compression = GetParam(), .ratio = 0.2});
  const auto gradients = make_gradients(1001, 8);
  const float largest = largest_magnitude_of(gradients);
  std::vector<float> residual(codec->needs_residual() ? gradients.size() : 0, 0.0f);
  std::vector<double> sums(gradients.size(), 0.0);
  constexpr int kSteps = 400;
  const float most_steps_late = GetParam() == Compression::kRandomk ? 90 : 30;
  for (int step = 1; step <= kSteps; ++step) {
    const auto payload = encoded(*codec, gradients, residual, static_cast<std::uint64_t>(step));
    const auto out = decoded(*codec, payload, gradients.size(), static_cast<std::uint64_t>(step));
    for (std::size_t i = 0; i < out.size(); ++i) sums[i] += static_cast<double>(out[i]);
    ASSERT_LE(largest_magnitude_of(residual), most_steps_late * largest) << "step " << step;
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double rest = residual.empty() ? 0.0 : static_cast<double>(residual[i]);
    const double error = residual.empty() ? 0.004 * std::fabs(gradients[i]) : 1e-5 * largest;
    ASSERT_NEAR((sums[i] + rest) / kSteps, gradients[i], error) << "element " << i;
  }
}

TEST_P(EveryCodec, RefusesAPayloadOfAnotherSize) {
  std::vector<float> out(300, 5.0f);
  std::vector<std::byte> payload(codec_->bytes(300) + 1);
  for (const std::size_t size : {std::size_t{0}, payload.size() - 2, payload.size()}) {
    try {
      codec_->decode(std::span(payload).first(size), out, kSeed);
      FAIL() << size << " bytes were taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
      EXPECT_THAT(error.what(), HasSubstr("parallel.compression"));
    }
  }
  EXPECT_TRUE(are_all(out, 5.0f));
}

TEST_P(EveryCodec, TakesOrRefusesAnyBytesOfTheRightSize) {
  for (const std::size_t size : {1, 129, 5000, 70001}) {
    std::vector<std::byte> payload(codec_->bytes(size));
    for (std::uint64_t attempt = 0; attempt < 20; ++attempt) {
      std::uint32_t word = 1;
      for (std::size_t i = 0; i < payload.size(); ++i) {
        if (i % 1024 == 0) word = random_word(attempt, 1, i);
        word = word * 1664525u + 1013904223u;
        payload[i] = static_cast<std::byte>(word >> 24);
      }
      std::vector<float> sums(size, 0.0f);
      try {
        codec_->decode_add(payload, sums, kSeed);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kProtocol);
        EXPECT_TRUE(are_all(sums, 0.0f)) << "a refused payload was added";
      }
    }
  }
}

TEST_P(EveryCodec, RefusesSpansThatDoNotFit) {
  const auto values = make_gradients(5000, 9);
  std::vector<std::byte> payload(codec_->bytes(5000));
  std::vector<std::byte> scratch(codec_->scratch_bytes(5000));
  std::vector<float> residual(4999);
  EXPECT_THROW(codec_->encode(values, residual, payload, scratch, 0), Error);
  EXPECT_THROW(codec_->encode(values, {}, std::span(payload).first(payload.size() - 1), scratch, 0),
               Error);
  if (scratch.empty()) return;
  EXPECT_THROW(codec_->encode(values, {}, payload, std::span(scratch).subspan(1), 0), Error);
}

TEST(CodecBytes, AreTheShareOfFloatsThatIsPromised) {
  constexpr std::size_t kElements = 1'000'003;
  const auto share = [&](Compression compression) {
    const auto bytes = make_codec({.compression = compression})->bytes(kElements);
    return static_cast<double>(bytes) / (4.0 * kElements);
  };
  EXPECT_EQ(share(Compression::kNone), 1);
  EXPECT_EQ(share(Compression::kBf16), 0.5);
  EXPECT_LE(share(Compression::kF16), 0.51);
  EXPECT_LE(share(Compression::kInt8), 0.26);
  EXPECT_LE(share(Compression::kInt4), 0.133);
  EXPECT_LE(share(Compression::kOnebit), 0.04);
  EXPECT_LE(share(Compression::kTopk), 0.0101);
  EXPECT_LE(share(Compression::kRandomk), 0.0101);
}

TEST(CodecRatio, OutsideOfItsRangeIsRefused) {
  for (const double ratio : {0.0, -1.0, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(make_codec({.compression = Compression::kTopk, .ratio = ratio}), Error);
    EXPECT_THROW(make_codec({.compression = Compression::kRandomk, .ratio = ratio}), Error);
  }
}

}  // namespace
}  // namespace lockstep::parallel
