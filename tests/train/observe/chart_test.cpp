#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/train/observe/report/chart.h"
#include "lockstep/train/observe/report/curve.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Curve, FewPointsStayAsTheyAre) {
  CurveBuilder curve;
  for (int step = 1; step <= 1000; ++step) curve.add(step, step % 7);
  const auto points = curve.points();
  ASSERT_EQ(points.size(), 1000U);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(points[static_cast<std::size_t>(i)].step, i + 1);
    EXPECT_EQ(points[static_cast<std::size_t>(i)].value, (i + 1) % 7);
  }
}

TEST(Curve, ASpikeAmongManyStepsStays) {
  for (const int steps : {1001, 2003, 100'003}) {
    CurveBuilder curve;
    for (int step = 1; step <= steps; ++step) {
      curve.add(step, step == steps / 3 ? 9 : step == steps / 2 ? -9 : step == steps ? 5 : 1);
    }
    const auto points = curve.points();
    EXPECT_LE(points.size(), CurveBuilder::kMostPoints);
    EXPECT_GE(points.size(), CurveBuilder::kMostPoints / 5);
    std::vector<std::pair<double, double>> spikes;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (i > 0) {
        EXPECT_GT(points[i].step, points[i - 1].step);
      }
      if (points[i].value != 1) spikes.emplace_back(points[i].step, points[i].value);
    }
    const std::vector<std::pair<double, double>> expected = {
        {steps / 3, 9}, {steps / 2, -9}, {steps, 5}};
    EXPECT_EQ(spikes, expected);
  }
}

TEST(Curve, WhatIsNoNumberIsAGapUnlessANeighbourHasAValue) {
  CurveBuilder curve;
  curve.add(1, 1);
  curve.add(2, std::nan(""));
  curve.add(3, std::numeric_limits<double>::infinity());
  curve.add(4, 2);
  ASSERT_EQ(curve.points().size(), 4U);
  EXPECT_TRUE(std::isnan(curve.points()[1].value));
  EXPECT_TRUE(std::isnan(curve.points()[2].value));

  CurveBuilder many;
  for (int step = 1; step <= 5000; ++step) many.add(step, step % 2 == 0 ? step : std::nan(""));
  for (const CurvePoint& point : many.points()) EXPECT_EQ(point.value, point.step);
}

TEST(Curve, AFadingMeanOfALineIsOnTheLine) {
  FadingMean mean(5);
  CurvePoint last;
  for (int step = 1; step <= 100; ++step) last = mean.add(step, 3 - 0.5 * step);
  EXPECT_NEAR(last.value, 3 - 0.5 * last.step, 1e-9);
  const CurvePoint same = mean.add(101, std::nan(""));
  EXPECT_EQ(same.value, last.value);
}

TEST(Chart, TicksAreRoundAndEncloseAllValues) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {0, 1}, {1.37, 4.29}, {0, 1e-3}, {-3, 7}, {0, 17'914}, {5, 5}, {0, 0}, {-1e-9, 1e300}}) {
    const Ticks ticks = ticks_around(low, high, 4);
    EXPECT_LE(ticks.first, low + ticks.distance * 1e-6);
    EXPECT_GE(ticks.last(), high - ticks.distance * 1e-6);
    EXPECT_GE(ticks.count, 3);
    EXPECT_LE(ticks.count, 8);
    const double leading = ticks.distance / std::pow(10, std::floor(std::log10(ticks.distance)));
    EXPECT_TRUE(std::abs(leading - 1) < 1e-9 || std::abs(leading - 2) < 1e-9 ||
                std::abs(leading - 5) < 1e-9 || std::abs(leading - 10) < 1e-9)
        << leading;
  }
}

TEST(Chart, LabelsHaveTheDigitsTheyNeed) {
  EXPECT_EQ(tick_label(1.5, 0.5), "1.5");
  EXPECT_EQ(tick_label(2, 0.5), "2.0");
  EXPECT_EQ(tick_label(0.1 + 0.2, 0.1), "0.3");
  EXPECT_EQ(tick_label(1e-20, 0.1), "0");
  EXPECT_EQ(tick_label(0.0004, 0.0002), "0.0004");
  EXPECT_EQ(tick_label(4e-5, 2e-5), "4e-05");
  EXPECT_EQ(tick_label(15'000, 5'000), "15,000");
  EXPECT_EQ(tick_label(-2, 1), "-2");
  EXPECT_EQ(tick_label(2.5e6, 5e5), "2.5 M");
}

TEST(Chart, DrawsGapsAndPointsThatStandAlone) {
  const double gap = std::nan("");
  const std::string svg =
      draw_chart({.title = "a \"b\"",
                  .curves = {{"loss", "blue", {{1, 0}, {2, gap}, {3, 1}, {4, 1}}, false}},
                  .last_step = 4,
                  .width = 180,
                  .height = 136});
  // 100 pixels of steps from 58 on, 100 of values up from 110.
  EXPECT_THAT(svg, HasSubstr("d=\"M83.0 110.0h.01M133.0 10.0L158.0 10.0\""));
  EXPECT_THAT(svg, HasSubstr("aria-label=\"a &quot;b&quot;\""));
  EXPECT_THAT(svg, HasSubstr("[&quot;loss&quot;,[1,3,4],[0,1,1]]"));
  EXPECT_THAT(draw_chart({.curves = {{"loss", "blue", {{1, gap}}, false}}}), Not(HasSubstr("svg")));
}

}  // namespace
}  // namespace lockstep::train
