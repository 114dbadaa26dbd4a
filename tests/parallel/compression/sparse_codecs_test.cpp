// The codecs that send a few elements: which ones, and what payloads they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/math/half.h"
#include "lockstep/parallel/compression/sparse.h"
#include "tests/parallel/compression/gradients.h"

namespace lockstep::parallel {
namespace {

using testing::are_all;
using testing::decoded;
using testing::encoded;
using ::testing::HasSubstr;
using testing::kOddSizes;
using testing::make_gradients;

// By sorting.
std::vector<float> model_of_topk(std::span<const float> values, std::size_t kept) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  std::vector<float> out(values.size(), 0.0f);
  for (std::size_t i = 0; i < kept; ++i) out[order[i]] = to_float(to_bfloat16(values[order[i]]));
  return out;
}

void expect_topk(std::span<const float> values, double ratio) {
  const auto codec = make_codec({.compression = Compression::kTopk, .ratio = ratio});
  const auto out = decoded(*codec, encoded(*codec, values, {}, 0), values.size(), 0);
  EXPECT_EQ(out, model_of_topk(values, kept_elements(values.size(), ratio)))
      << values.size() << " elements, ratio " << ratio;
}

TEST(TopkCodec, SendsTheLargest) {
  for (const std::size_t size : kOddSizes) {
    for (const double ratio : {1e-6, 0.01, 0.3, 1.0}) {
      expect_topk(make_gradients(size, 21), ratio);
    }
  }
  expect_topk(make_gradients(1'500'007, 22), 0.01);
}

TEST(TopkCodec, SendsTheLargestInWhateverOrderTheyCome) {
  auto values = make_gradients(200'003, 23);
  const auto smaller = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
  std::sort(values.begin(), values.end(), smaller);
  expect_topk(values, 0.01);
  std::reverse(values.begin(), values.end());
  expect_topk(values, 0.01);
}

// Every 32nd element is looked at for a first guess, and these are larger than all others.
TEST(TopkCodec, SendsTheLargestThoughTheSampleMisleads) {
  auto values = make_gradients(200'003, 25);
  for (std::size_t i = 0; i < values.size(); i += 32) values[i] += 100;
  expect_topk(values, 0.01);
  for (std::size_t i = 0; i < values.size(); i += 32) values[i] = 0;
  expect_topk(values, 0.01);
}

TEST(TopkCodec, TakesOfEqualsTheFirst) {
  for (const std::size_t size : kOddSizes) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i) {
      values[i] = static_cast<float>(random_word(24, 0, i) % 3) - 1;
    }
    expect_topk(values, 0.01);
    expect_topk(values, 0.4);
  }
}

TEST(TopkCodec, KeepsAtLeastOneElement) {
  EXPECT_EQ(kept_elements(0, 0.01), 0u);
  EXPECT_EQ(kept_elements(1, 0.01), 1u);
  EXPECT_EQ(kept_elements(149, 0.01), 1u);
  EXPECT_EQ(kept_elements(150, 0.01), 2u);
  EXPECT_EQ(kept_elements(3, 1), 3u);
}

// Two segments, of 65536 elements and of 64; 10 elements are kept.
class ForgedTopk : public ::testing::Test {
 protected:
  static constexpr std::size_t kElements = 65600;
  static constexpr std::size_t kPositions = 2 * sizeof(std::uint32_t);

  template <class T>
  void put(std::size_t at, T value) {
    std::memcpy(payload_.data() + at, &value, sizeof(T));
  }
  void expect_refused(const char* why) {
    std::vector<float> sums(kElements, 3.0f);
    try {
      codec_->decode_add(payload_, sums, 0);
      FAIL() << "taken, though it " << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
    EXPECT_TRUE(are_all(sums, 3.0f));
  }

  std::unique_ptr<Codec> codec_ =
      make_codec({.compression = Compression::kTopk, .ratio = 10.0 / kElements});
  std::vector<std::byte> payload_ = [this] {
    std::vector<float> values(kElements, 0.0f);
    for (std::size_t i = 0; i < 10; ++i) values[65530 + i] = 1;
    return encoded(*codec_, values, {}, 0);  // 6 in the first segment, 4 in the second
  }();
};

TEST_F(ForgedTopk, IsTakenAsItIs) {
  const auto out = decoded(*codec_, payload_, kElements, 0);
  EXPECT_EQ(std::accumulate(out.begin(), out.end(), 0.0f), 10);
}

TEST_F(ForgedTopk, WithTooManyElementsIsRefused) {
  put<std::uint32_t>(0, 11);
  expect_refused("has more elements than are left");
  put<std::uint32_t>(0, 0xffffffff);
  expect_refused("has more elements than are left");
}

TEST_F(ForgedTopk, WithTooFewElementsIsRefused) {
  put<std::uint32_t>(sizeof(std::uint32_t), 3);
  expect_refused("ends before the last element");
}

TEST_F(ForgedTopk, WithAPositionOutsideIsRefused) {
  put<std::uint16_t>(kPositions + 9 * sizeof(std::uint16_t), 64);
  expect_refused("has a position outside of it");
}

TEST_F(ForgedTopk, WithAPositionTwiceIsRefused) {
  put<std::uint16_t>(kPositions + sizeof(std::uint16_t), 65530);
  expect_refused("has positions that do not rise");
}

std::vector<std::size_t> drawn(std::size_t elements, double ratio, std::uint64_t seed) {
  const auto codec = make_codec({.compression = Compression::kRandomk, .ratio = ratio});
  const std::vector<float> ones(elements, 1.0f);
  const auto out = decoded(*codec, encoded(*codec, ones, {}, seed), elements, seed);
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < elements; ++i) {
    if (out[i] != 0) positions.push_back(i);
  }
  return positions;
}

TEST(RandomkCodec, DrawsTheExactNumberFromAllOverThePlace) {
  for (const std::size_t size : kOddSizes) {
    for (const double ratio : {0.01, 0.3, 1.0}) {
      const auto positions = drawn(size, ratio, 31);
      ASSERT_EQ(positions.size(), kept_elements(size, ratio));
      for (std::size_t i = 0; i < positions.size(); ++i) {
        EXPECT_GE(positions[i], i * size / positions.size());
        EXPECT_LT(positions[i], (i + 1) * size / positions.size());
      }
    }
  }
}

TEST(RandomkCodec, DrawsByTheSeedAlone) {
  EXPECT_EQ(drawn(10'000, 0.01, 32), drawn(10'000, 0.01, 32));
  EXPECT_NE(drawn(10'000, 0.01, 32), drawn(10'000, 0.01, 33));
}

TEST(RandomkCodec, DrawsEveryElementInTime) {
  std::set<std::size_t> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    for (const std::size_t position : drawn(100, 0.1, seed)) seen.insert(position);
  }
  EXPECT_EQ(seen.size(), 100u);
}

TEST(RandomkCodec, SendsElementsAsTheyAre) {
  const auto codec = make_codec({.compression = Compression::kRandomk, .ratio = 0.1});
  const auto values = make_gradients(1000, 34);
  const auto out = decoded(*codec, encoded(*codec, values, {}, 35), values.size(), 35);
  for (const std::size_t i : drawn(1000, 0.1, 35)) EXPECT_EQ(out[i], values[i]);
}

}  // namespace
}  // namespace lockstep::parallel
