#include "lockstep/nn/generate/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::nn::sampling_test {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + 3);
  return logits;
}

// Draws at many positions come as often as they should, to five stddevs.
void expect_shares(const std::vector<float>& logits, const SamplingOptions& options,
                   const std::map<std::int32_t, double>& shares, int draws = 20000) {
  Sampler sampler(options);
  std::map<std::int32_t, int> counts;
  for (std::uint64_t position = 0; position < static_cast<std::uint64_t>(draws); ++position) {
    ++counts[sampler.sample(logits, position)];
  }
  double sum = 0;
  for (const auto& [token, share] : shares) {
    const double stddev = std::sqrt(draws * share * (1 - share));
    EXPECT_NEAR(counts[token], draws * share, 5 * stddev) << "token " << token;
    sum += share;
    counts.erase(token);
  }
  EXPECT_NEAR(sum, 1, 1e-9) << "the shares that a test asks for";
  for (const auto& [token, count] : counts) {
    EXPECT_EQ(count, 0) << "token " << token << " should never come";
  }
}

TEST(Sampling, DrawsEveryTokenByItsProbability) {
  expect_shares(logits_of({0.5, 0.2, 0.05, 0.25}), {.seed = 3},
                {{0, 0.5}, {1, 0.2}, {2, 0.05}, {3, 0.25}});
}

TEST(Sampling, TemperatureIsAPowerOfTheProbabilities) {
  // At 1/2 they are squared: 0.25, 0.04, 0.09 of 0.38.
  expect_shares(logits_of({0.5, 0.2, 0.3}), {.temperature = 0.5},
                {{0, 0.25 / 0.38}, {1, 0.04 / 0.38}, {2, 0.09 / 0.38}});
  // Very hot, all are alike.
  expect_shares(logits_of({0.9, 0.05, 0.05}), {.temperature = 1e6},
                {{0, 1. / 3}, {1, 1. / 3}, {2, 1. / 3}});
}

TEST(Sampling, TopKLeavesTheLikeliest) {
  const auto logits = logits_of({0.1, 0.4, 0.05, 0.3, 0.15});
  expect_shares(logits, {.top_k = 2}, {{1, 4. / 7}, {3, 3. / 7}});
  expect_shares(logits, {.top_k = 1}, {{1, 1}});
  expect_shares(logits, {.top_k = 99}, {{0, 0.1}, {1, 0.4}, {2, 0.05}, {3, 0.3}, {4, 0.15}});
  // Of equally likely ones the first.
  expect_shares(logits_of({0.2, 0.3, 0.2, 0.3}), {.top_k = 3}, {{1, 0.375}, {3, 0.375}, {0, 0.25}});
}

TEST(Sampling, TopPLeavesTheFewestThatAreEnough) {
  const auto logits = logits_of({0.1, 0.4, 0.05, 0.3, 0.15});
  expect_shares(logits, {.top_p = 0.69}, {{1, 4. / 7}, {3, 3. / 7}});
  expect_shares(logits, {.top_p = 0.71}, {{1, 0.4 / 0.85}, {3, 0.3 / 0.85}, {4, 0.15 / 0.85}});
  expect_shares(logits, {.top_p = 1e-9}, {{1, 1}});
  // The probabilities are those among the top k: 0.4 of 0.7 is enough.
  expect_shares(logits, {.top_k = 2, .top_p = 0.55}, {{1, 1}});
  // And those at the temperature: 16 of 30.5 where the squares are taken.
  expect_shares(logits, {.temperature = 0.5, .top_p = 0.52}, {{1, 1}});
}

TEST(Sampling, TopPFindsItsTokensAmongMany) {
  // A thousand unlikely tokens between three that have 0.9 together.
  std::vector<double> probabilities(1003, 0.1 / 1000);
  probabilities[17] = 0.5;
  probabilities[501] = 0.25;
  probabilities[1002] = 0.15;
  expect_shares(logits_of(probabilities), {.top_p = 0.89},
                {{17, 0.5 / 0.9}, {501, 0.25 / 0.9}, {1002, 0.15 / 0.9}}, 1000);
}

TEST(Sampling, AtTemperatureZeroTheFirstOfTheLikeliestComes) {
  const std::vector<float> logits = {1, 7, -3, 7, kNever};
  Sampler sampler({.temperature = 0, .seed = 5});
  for (std::uint64_t position = 0; position < 5; ++position) {
    EXPECT_EQ(sampler.sample(logits, position), 1);
  }
}

TEST(Sampling, IsAPureFunctionOfSeedPositionAndLogits) {
  const auto logits = logits_of({0.2, 0.2, 0.2, 0.2, 0.2});
  const auto draws = [&](std::uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<std::int32_t> tokens;
    for (std::uint64_t position = 0; position < 50; ++position) {
      tokens.push_back(sampler.sample(logits, position));
    }
    return tokens;
  };
  const auto forwards = draws(1);
  EXPECT_EQ(draws(1), forwards);
  EXPECT_NE(draws(2), forwards);
  Sampler sampler({.seed = 1});
  for (std::uint64_t position = 50; position-- > 0;) {
    EXPECT_EQ(sampler.sample(logits, position), forwards[position]);
  }
}

TEST(Sampling, NeverDrawsWhatCannotBe) {
  expect_shares({kNever, 2, kNever, 2}, {}, {{1, 0.5}, {3, 0.5}});
  expect_shares({kNever, 2, kNever, 2}, {.top_k = 3, .top_p = 0.99}, {{1, 0.5}, {3, 0.5}});
}

std::string refusal(const SamplingOptions& options, const std::vector<float>& logits = {1}) {
  try {
    Sampler(options).sample(logits, 0);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(Sampling, RefusesWhatMakesNoSense) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(refusal({.temperature = -1}).find("temperature is -1"), std::string::npos);
  EXPECT_NE(refusal({.temperature = std::nan("")}).find("temperature"), std::string::npos);
  EXPECT_NE(refusal({.top_k = -2}).find("top-k is -2"), std::string::npos);
  EXPECT_NE(refusal({.top_p = 0}).find("top-p is 0"), std::string::npos);
  EXPECT_NE(refusal({.top_p = 1.5}).find("top-p is 1.5"), std::string::npos);
  EXPECT_NE(refusal({}, {}).find("logits"), std::string::npos);
  for (const double temperature : {0., 1.}) {
    EXPECT_NE(refusal({.temperature = temperature}, {1, kNan, 2}).find("NaN"), std::string::npos);
    EXPECT_NE(refusal({.temperature = temperature}, {kNan}).find("NaN"), std::string::npos);
    EXPECT_NE(refusal({.temperature = temperature}, {kNever, kNever}).find("-infinity"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::nn::sampling_test
