#include "lockstep/live/metrics_follower.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"

namespace lockstep::live {
namespace {

class FollowedMetrics : public ::testing::Test {
 protected:
  void append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }
  void write_steps(int from, int to) {
    std::string text;
    for (int step = from; step <= to; ++step) {
      losses_.resize(static_cast<std::size_t>(step));
      losses_.back() = 3 + 0.001 * static_cast<double>(random_() % 1000);
      text += fmt::format(
          "{{\"step\":{},\"loss\":{},\"tokens\":512,\"step_ms\":250.0,\"data_ms\":0.0{},"
          "\"skipped\":false}}\n",
          step, losses_.back(),
          step % 1000 == 0 ? fmt::format(",\"val_loss\":{}", 0.5 * step) : "");
    }
    append(text);
  }
  void poll() {
    while (follower_.poll(1 << 16)) {
    }
  }

  ScratchFolder folder_;
  std::filesystem::path path_ = folder_.path() / "metrics.jsonl";
  MetricsFollower follower_{folder_.path()};
  std::vector<double> losses_;  // of step i + 1
  std::mt19937 random_{5};
};

TEST_F(FollowedMetrics, TotalsAreThoseOfAllLines) {
  poll();
  EXPECT_EQ(follower_.totals().rows, 0);
  write_steps(1, 30);
  append("{\"step\":31,\"loss\":1");  // half a line
  poll();
  EXPECT_EQ(follower_.totals().rows, 30);
  EXPECT_EQ(follower_.totals().unreadable, 0);
  append(",\"skipped\":true,\"compute_ms\":1.0}\nnothing that can be read\n");
  poll();
  const MetricsTotals& totals = follower_.totals();
  EXPECT_EQ(totals.rows, 31);
  EXPECT_EQ(totals.unreadable, 1);
  EXPECT_EQ(totals.skipped, 1);
  EXPECT_EQ(totals.tokens, 30 * 512);
  EXPECT_EQ(totals.step_ms, 30 * 250);
  EXPECT_EQ(totals.last[Metric::kLoss], 1);
  EXPECT_EQ(totals.shared_steps, 1);
  EXPECT_FALSE(totals.last_validation);
}

TEST_F(FollowedMetrics, AFileThatAResumedRunReplacedIsReadAgain) {
  write_steps(1, 3000);
  poll();
  EXPECT_GT(follower_.steps().rows_per_bucket(), 1u);
  std::string text;
  for (int step = 1; step <= 10; ++step) text += fmt::format("{{\"step\":{},\"loss\":7}}\n", step);
  write_file(path_, text);
  poll();
  EXPECT_EQ(follower_.totals().rows, 10);
  EXPECT_EQ(follower_.steps().rows_per_bucket(), 1u);
  EXPECT_EQ(follower_.steps().size(), 10u);
  EXPECT_EQ(follower_.validations().size(), 0u);
  EXPECT_EQ(follower_.totals().last_validation.has_value(), false);
}

TEST_F(FollowedMetrics, StaySmallHoweverLongTheRun) {
  write_steps(1, 50'000);
  poll();
  EXPECT_LE(follower_.steps().size(), SeriesTable::kMostBuckets);
  EXPECT_GE(follower_.steps().size(), SeriesTable::kMostBuckets / 2);
  EXPECT_EQ(follower_.validations().size(), 50u);
  EXPECT_EQ(follower_.validations().last_place(49).step, 50'000);
}

// The oracle is the list of losses that were written.
TEST_F(FollowedMetrics, APartIsExactWhereverItIs) {
  write_steps(1, 40'000);
  poll();
  using Axis = MetricsFollower::Axis;
  for (const auto& [from, to] : std::vector<std::pair<int, int>>{{1, 1},
                                                                 {1, 900},
                                                                 {63, 66},
                                                                 {20'000, 20'999},
                                                                 {39'990, 40'000},
                                                                 {39'999, 50'000},
                                                                 {0, 5}}) {
    for (const Axis axis : {Axis::kStep, Axis::kTokens, Axis::kSeconds}) {
      const double unit = axis == Axis::kStep ? 1 : axis == Axis::kTokens ? 512 : 0.25;
      const auto tables =
          follower_.part(axis, (from - 0.5) * unit, (to + 0.5) * unit).read(100'000);
      ASSERT_TRUE(tables);
      const int first = std::max(from, 1), last = std::min(to, 40'000);
      ASSERT_EQ(tables->steps.rows_per_bucket(), 1u);
      ASSERT_EQ(tables->steps.size(), static_cast<std::size_t>(last - first + 1));
      for (int step = first; step <= last; ++step) {
        const auto bucket = static_cast<std::size_t>(step - first);
        EXPECT_EQ(tables->steps.last_place(bucket).step, step);
        EXPECT_EQ(tables->steps.last_place(bucket).tokens, 512.0 * step);
        EXPECT_EQ(tables->steps.cell(bucket, 0).first, losses_[static_cast<std::size_t>(step - 1)]);
      }
      EXPECT_EQ(tables->validations.size(),
                static_cast<std::size_t>(last / 1000 - (first - 1) / 1000));
    }
  }
}

TEST_F(FollowedMetrics, APartOfManyStepsHasAsManyPointsAsAskedForAndEveryExtreme) {
  write_steps(1, 40'000);
  losses_[12'344] = 99;  // step 12345, in the file below
  std::string text = read_file(path_);
  const auto at = text.find("\"step\":12345,");
  const auto loss = text.find("\"loss\":", at) + 7;
  text.replace(loss, text.find(',', loss) - loss, "99");
  write_file(path_, text);
  poll();
  const auto tables = follower_.part(MetricsFollower::Axis::kStep, 5000, 35'000).read(500);
  ASSERT_TRUE(tables);
  EXPECT_LE(tables->steps.size(), 500u);
  EXPECT_GE(tables->steps.size(), 400u);
  double highest = 0;
  for (std::size_t i = 0; i < tables->steps.size(); ++i) {
    const auto& cell = tables->steps.cell(i, 0);
    double low = 1e9, high = 0;
    for (double step = tables->steps.first_place(i).step; step <= tables->steps.last_place(i).step;
         ++step) {
      low = std::min(low, losses_[static_cast<std::size_t>(step) - 1]);
      high = std::max(high, losses_[static_cast<std::size_t>(step) - 1]);
    }
    EXPECT_EQ(std::min(cell.first, cell.second), low);
    EXPECT_EQ(std::max(cell.first, cell.second), high);
    highest = std::max(highest, high);
  }
  EXPECT_EQ(highest, 99);
}

TEST_F(FollowedMetrics, APartOfAFileThatWasReplacedIsNone) {
  write_steps(1, 100);
  poll();
  const auto part = follower_.part(MetricsFollower::Axis::kStep, 1, 50);
  write_file(path_, "{\"step\":1}\n");
  EXPECT_FALSE(part.read(100));
  std::filesystem::remove(path_);
  EXPECT_FALSE(part.read(100));
}

}  // namespace
}  // namespace lockstep::live
