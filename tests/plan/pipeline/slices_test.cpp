// The programmes that cut tokens into slices and blocks into stages, against all there is to try.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/plan/pipeline/balance.h"
#include "lockstep/plan/pipeline/timetable.h"
#include "lockstep/plan/pipeline/token_slices.h"

namespace lockstep::plan {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every way to write `total` as a sum of positive numbers in order.
void for_every_composition(int total, const std::function<void(const std::vector<int>&)>& visit) {
  for (unsigned cuts = 0; cuts < 1u << (total - 1); ++cuts) {
    std::vector<int> parts = {1};
    for (int i = 0; i < total - 1; ++i) {
      if ((cuts >> i & 1u) != 0) {
        parts.push_back(1);
      } else {
        ++parts.back();
      }
    }
    visit(parts);
  }
}

// A part that does not depend on the length, one that grows with it, and attention.
double transformer_time(int length, int context) {
  return 2.0 + 0.5 * length + 0.05 * length * (context + length / 2.0);
}

TEST(TokenSlices, AreTheBestOfAllCompositions) {
  std::mt19937_64 random(3);
  for (int tokens = 1; tokens <= 10; ++tokens) {
    for (const int stages : {1, 2, 3, 8, 48}) {
      std::map<std::pair<int, int>, double> table;
      for (int length = 1; length <= tokens; ++length) {
        for (int context = 0; context < tokens; ++context) {
          table[{length, context}] = 1.0 + static_cast<double>(random() % 1000) / 250.0;
        }
      }
      const SliceTime random_time = [&](int length, int context) {
        return table.at({length, context});
      };
      for (const SliceTime& time : {SliceTime(transformer_time), random_time}) {
        double least = std::numeric_limits<double>::infinity();
        for_every_composition(tokens, [&](const std::vector<int>& lengths) {
          least = std::min(least, time_of_slices(lengths, stages, time));
        });
        const TokenSlices best = best_slices(tokens, stages, time);
        EXPECT_NEAR(best.time, least, 1e-9) << tokens << " tokens, " << stages << " stages";
        EXPECT_EQ(std::accumulate(best.lengths.begin(), best.lengths.end(), 0), tokens);
      }
    }
  }
}

TEST(TokenSlices, AreMultiplesOfTheGranularityAndShrinkTowardsTheEnd) {
  const TokenSlices best = best_slices(256, 12, transformer_time, 8);
  for (const int length : best.lengths) EXPECT_EQ(length % 8, 0);
  EXPECT_GT(best.lengths.size(), 1u);
  EXPECT_TRUE(std::ranges::is_sorted(best.lengths, std::greater<>()));
  for (int slices = 1; slices <= 32; ++slices) {
    EXPECT_LE(best.time, uniform_slices(256, slices, 12, transformer_time).time + 1e-9);
  }
}

TEST(TokenSlices, OfOneStageAreOneSlice) {
  EXPECT_THAT(best_slices(64, 1, transformer_time).lengths, ElementsAre(64));
  EXPECT_THAT(uniform_slices(10, 3, 2, transformer_time).lengths, ElementsAre(4, 3, 3));
}

// The formula of the paper is what the simulated schedule takes, forward and backward.
TEST(TokenSlices, TakeTheTimeOfTheSimulatedSchedule) {
  for (int tokens = 2; tokens <= 8; ++tokens) {
    for_every_composition(tokens, [&](const std::vector<int>& lengths) {
      const auto slices = static_cast<int>(lengths.size());
      for (const int stages : {1, 3, 6}) {
        std::vector<double> parts;
        int context = 0;
        for (const int length : lengths) {
          parts.push_back(transformer_time(length, context));
          context += length;
        }
        const StepSchedule schedule =
            make_step_schedule(find_pipeline_kind("terapipe"),
                               {.stages = stages, .micro_batches = 1, .slices = slices});
        const Timetable table = simulate(schedule, {.slices = parts});
        // Backward takes twice as long as forward.
        EXPECT_NEAR(table.end, 3 * time_of_slices(lengths, stages, transformer_time), 1e-9);
      }
    });
  }
}

TEST(TokenSlices, RefuseWhatCannotBeCut) {
  const auto refusal = [](const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal([] { best_slices(10, 2, transformer_time, 4); }),
              HasSubstr("multiples of 4 tokens do not make 10"));
  EXPECT_THAT(refusal([] { best_slices(0, 2, transformer_time); }), HasSubstr("0 tokens"));
  EXPECT_THAT(refusal([] { uniform_slices(4, 5, 2, transformer_time); }), HasSubstr("1 to 4"));
  EXPECT_THAT(refusal([] {
                balanced_stages(std::vector{1.0, 2.0}, 3);
              }),
              HasSubstr("2 blocks make 1 to 2 stages, not 3"));
}

TEST(BalancedStages, HaveTheLeastLargestCostOfAllCuts) {
  std::mt19937_64 random(11);
  for (int blocks = 1; blocks <= 10; ++blocks) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      std::vector<double> costs;
      for (int i = 0; i < blocks; ++i) costs.push_back(static_cast<double>(random() % 20));
      const auto largest = [&](const std::vector<int>& counts) {
        double most = 0;
        std::size_t first = 0;
        for (const int count : counts) {
          double sum = 0;
          for (int i = 0; i < count; ++i) sum += costs[first++];
          most = std::max(most, sum);
        }
        return most;
      };
      std::map<std::size_t, double> least;  // by stages
      for_every_composition(blocks, [&](const std::vector<int>& counts) {
        const auto found = least.try_emplace(counts.size(), largest(counts)).first;
        found->second = std::min(found->second, largest(counts));
      });
      for (const auto& [stages, expected] : least) {
        const std::vector<int> counts = balanced_stages(costs, static_cast<int>(stages));
        EXPECT_EQ(counts.size(), stages);
        EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), blocks);
        EXPECT_THAT(counts, ::testing::Each(::testing::Ge(1)));
        EXPECT_EQ(largest(counts), expected);
      }
    }
  }
}

TEST(BalancedStages, GiveAHeavyHeadAStageOfItsOwn) {
  EXPECT_THAT(balanced_stages(std::vector{1.0, 1.0, 1.0, 1.0, 1.0, 4.0}, 3), ElementsAre(_, _, 1));
  EXPECT_THAT(balanced_stages(std::vector{2.0, 2.0, 2.0, 2.0}, 2), ElementsAre(2, 2));
}

}  // namespace
}  // namespace lockstep::plan
