// Tables and logits that are divided into shards: together they do what the whole operation does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/base/math/half.h"
#include "lockstep/ops/ops.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kRows = 13;
constexpr std::int64_t kClasses = 71;
constexpr std::int64_t kWidth = 19;

// The classes of a shard, the last of which has fewer.
struct Shard {
  std::int64_t first, count;
};
std::vector<Shard> shards_of(std::int64_t all, std::int64_t shards) {
  std::vector<Shard> result;
  const std::int64_t each = (all + shards - 1) / shards;
  for (std::int64_t first = 0; first < all; first += each) {
    result.push_back({first, std::min(each, all - first)});
  }
  return result;
}

class ShardedOps : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Ops> ops_ = GetParam() == "cpu" ? make_cpu_ops(2) : make_reference_ops();
};
INSTANTIATE_TEST_SUITE_P(Shards, ShardedOps, ::testing::Values("cpu", "reference"),
                         [](const auto& tested) { return tested.param; });

float rounded(DType dtype, float value) {
  if (dtype == DType::kBF16) return to_float(to_bfloat16(value));
  return dtype == DType::kF16 ? to_float(to_half(value)) : value;
}

// A tensor of any compute type that owns its elements.
class Elements {
 public:
  Elements(DType dtype, const Shape& shape)
      : bytes_(shape.elements() * size_of(dtype)), tensor_(bytes_.data(), dtype, shape) {}
  const Tensor& tensor() const { return tensor_; }
  void set(std::size_t i, float value) {
    if (tensor_.dtype() == DType::kBF16) tensor_.as<BFloat16>()[i] = to_bfloat16(value);
    if (tensor_.dtype() == DType::kF16) tensor_.as<Half>()[i] = to_half(value);
    if (tensor_.dtype() == DType::kF32) tensor_.as<float>()[i] = value;
  }
  float at(std::size_t i) const {
    if (tensor_.dtype() == DType::kBF16) return to_float(tensor_.as<BFloat16>()[i]);
    if (tensor_.dtype() == DType::kF16) return to_float(tensor_.as<Half>()[i]);
    return tensor_.as<float>()[i];
  }

 private:
  std::vector<std::byte> bytes_;
  Tensor tensor_;
};

float logit(DType dtype, std::int64_t row, std::int64_t column) {
  return rounded(dtype, 3 * normal_at(4, 0, static_cast<std::uint64_t>(row * kClasses + column)) +
                            40 * (row % 2));
}

std::vector<std::int32_t> some_targets() {
  std::vector<std::int32_t> targets;
  for (std::int64_t row = 0; row < kRows; ++row) {
    targets.push_back(row % 5 == 2 ? ops::kNoTarget
                                   : static_cast<std::int32_t>(row * 17 % kClasses));
  }
  return targets;
}

TEST_P(ShardedOps, CrossEntropyOfShardsIsThatOfAllClasses) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<std::int32_t> targets = some_targets();
    Elements whole(dtype, {kRows, kClasses});
    for (std::int64_t i = 0; i < kRows * kClasses; ++i) {
      whole.set(static_cast<std::size_t>(i), logit(dtype, i / kClasses, i % kClasses));
    }
    std::vector<float> losses(kRows);
    ops_->run(ops::CrossEntropy{.logits = whole.tensor(),
                                .targets = tensor_of(std::span(targets)),
                                .losses = tensor_of(std::span(losses)),
                                .gradient = true,
                                .factor = 0.75});
    for (const std::int64_t count : {1, 2, 3, 7}) {
      const std::vector<Shard> shards = shards_of(kClasses, count);
      std::vector<float> statistics(static_cast<std::size_t>(count * kRows) * 3);
      const Tensor all = tensor_of(std::span(statistics), {count, kRows, ops::kLogitStatistics});
      std::vector<Elements> logits;
      for (std::size_t s = 0; s < shards.size(); ++s) {
        const Shard& shard = shards[s];
        Elements& mine = logits.emplace_back(dtype, Shape{kRows, shard.count});
        for (std::int64_t i = 0; i < kRows * shard.count; ++i) {
          mine.set(static_cast<std::size_t>(i),
                   logit(dtype, i / shard.count, shard.first + i % shard.count));
        }
        ops_->run(ops::LogitStatistics{.logits = mine.tensor(),
                                       .targets = tensor_of(std::span(targets)),
                                       .first_class = shard.first,
                                       .all_classes = kClasses,
                                       .statistics = all.row(static_cast<std::int64_t>(s))});
      }
      for (std::size_t s = 0; s < shards.size(); ++s) {
        const Shard& shard = shards[s];
        std::vector<float> mine(kRows);
        ops_->run(ops::CrossEntropy{.logits = logits[s].tensor(),
                                    .targets = tensor_of(std::span(targets)),
                                    .losses = tensor_of(std::span(mine)),
                                    .gradient = true,
                                    .factor = 0.75,
                                    .first_class = shard.first,
                                    .all_classes = kClasses,
                                    .statistics = all});
        const double tolerance = dtype == DType::kF32 ? 1e-6 : dtype == DType::kF16 ? 1e-3 : 8e-3;
        for (std::int64_t row = 0; row < kRows; ++row) {
          const auto at = static_cast<std::size_t>(row);
          EXPECT_NEAR(mine[at], losses[at], 2e-6 * (1 + std::fabs(losses[at]))) << row;
          for (std::int64_t i = 0; i < shard.count; ++i) {
            const float want = whole.at(static_cast<std::size_t>(row * kClasses + shard.first + i));
            EXPECT_NEAR(logits[s].at(static_cast<std::size_t>(row * shard.count + i)), want,
                        tolerance * std::fabs(want) + 1e-7)
                << row << ", " << i;
          }
        }
      }
    }
  }
}

TEST_P(ShardedOps, EmbeddingsOfShardsSumToThatOfTheTable) {
  std::vector<float> table(kClasses * kWidth);
  std::vector<float> dy(kRows * kWidth);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = normal_at(1, 0, i);
  for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = normal_at(2, 0, i);
  std::vector<std::int32_t> tokens(kRows);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(i * i * 7 % kClasses);
  }
  std::vector<float> sum(kRows * kWidth);
  for (const Shard& shard : shards_of(kClasses, 3)) {
    std::vector<float> y(kRows * kWidth, 5);
    const auto part = std::span(table).subspan(static_cast<std::size_t>(shard.first * kWidth),
                                               static_cast<std::size_t>(shard.count * kWidth));
    ops_->run(ops::Embedding{.tokens = tensor_of(std::span(tokens)),
                             .types = {},
                             .sequence = kRows,
                             .tokens_table = tensor_of(part, {shard.count, kWidth}),
                             .positions_table = {},
                             .types_table = {},
                             .dropout = {},
                             .y = tensor_of(std::span(y), {kRows, kWidth}),
                             .first_token = shard.first,
                             .vocabulary = kClasses});
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += y[i];

    std::vector<float> gradient(part.size(), 0.5f);
    ops_->run(ops::EmbeddingBackward{
        .tokens = tensor_of(std::span(tokens)),
        .types = {},
        .sequence = kRows,
        .dy = tensor_of(std::span(dy), {kRows, kWidth}),
        .dropout = {},
        .dtokens_table = tensor_of(std::span(gradient), {shard.count, kWidth}),
        .dpositions_table = {},
        .dtypes_table = {},
        .first_token = shard.first,
        .vocabulary = kClasses});
    for (std::int64_t entry = 0; entry < shard.count; ++entry) {
      for (std::int64_t i = 0; i < kWidth; ++i) {
        double want = 0.5;
        for (std::size_t row = 0; row < tokens.size(); ++row) {
          if (tokens[row] == shard.first + entry) {
            want += double{dy[row * kWidth + static_cast<std::size_t>(i)]};
          }
        }
        EXPECT_NEAR(gradient[static_cast<std::size_t>(entry * kWidth + i)], want, 1e-5);
      }
    }
  }
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    for (std::size_t i = 0; i < kWidth; ++i) {
      EXPECT_EQ(sum[row * kWidth + i], table[static_cast<std::size_t>(tokens[row]) * kWidth + i]);
    }
  }
}

TEST_P(ShardedOps, AShardOutsideOfTheWholeIsRefused) {
  std::vector<float> table(4), y(2);
  std::vector<std::int32_t> tokens = {1};
  ops::Embedding call{.tokens = tensor_of(std::span(tokens)),
                      .types = {},
                      .sequence = 1,
                      .tokens_table = tensor_of(std::span(table), {2, 2}),
                      .positions_table = {},
                      .types_table = {},
                      .dropout = {},
                      .y = tensor_of(std::span(y), {1, 2})};
  const auto error_of = [&]() -> std::string {
    try {
      ops_->run(call);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  call.first_token = 1;
  EXPECT_THAT(error_of(), HasSubstr("first_token is 1, expected 0 without a shard"));
  call.vocabulary = 3;
  EXPECT_EQ(error_of(), "");
  call.first_token = 2;
  EXPECT_THAT(error_of(), HasSubstr("first_token is 2, expected 0 to 1, for 2 of 3"));
  call.first_token = 0;
  tokens[0] = 3;
  EXPECT_THAT(error_of(), HasSubstr("tokens[0] is 3, expected 0 to 2"));
}

}  // namespace
}  // namespace lockstep
