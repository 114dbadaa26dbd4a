// Functions of vectors against the same in double, over dense sweeps. They are compiled here for
// the instruction set of the build; activation_test.cpp goes through all others.
#include "lockstep/base/simd/math.inl"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/simd/soft_cap.inl"

namespace lockstep::simd {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// How many units in the last place lie between; below the normal numbers, how many of the least.
double units_between(float is, double should_be) {
  if (static_cast<double>(is) == should_be) return 0;
  const float least = std::numeric_limits<float>::min();
  const float size = std::fmax(static_cast<float>(std::fabs(should_be)), least);
  const double unit =
      static_cast<double>(std::nextafter(size, kInfinity)) - static_cast<double>(size);
  return std::fabs(static_cast<double>(is) - should_be) / unit;
}

// The most units that f is away from `exact` between two numbers.
template <class F, class Exact>
double most_units(float from, float to, F&& f, Exact&& exact) {
  constexpr int kSteps = 100'000;
  double most = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const float x = from + (to - from) * (static_cast<float>(i) / kSteps);
    most = std::fmax(most, units_between(f(splat(x))[0], exact(static_cast<double>(x))));
  }
  return most;
}

double exp_of(double x) { return std::exp(x); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal_below(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }
double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0)); }

TEST(Math, ExpIsExactToTwoUnits) {
  EXPECT_LE(most_units(-87.3f, 88.7f, exp, exp_of), 2);
  EXPECT_LE(most_units(-1, 1, exp, exp_of), 2);
  EXPECT_LE(most_units(-87.3f, 0, exp_not_above_zero, exp_of), 2);
  EXPECT_LE(most_units(-1, 0, exp_not_above_zero, exp_of), 2);
}

TEST(Math, ExpEndsInZeroAndInfinity) {
  for (const auto f : {exp, exp_not_above_zero}) {
    EXPECT_EQ(f(splat(0))[0], 1);
    EXPECT_EQ(f(splat(-87.4f))[0], 0);
    EXPECT_EQ(f(splat(-1e30f))[0], 0);
    EXPECT_EQ(f(splat(-kInfinity))[0], 0);
    EXPECT_TRUE(std::isnan(f(splat(kNan))[0]));
  }
  EXPECT_EQ(exp(splat(88.8f))[0], kInfinity);
  EXPECT_EQ(exp(splat(kInfinity))[0], kInfinity);
}

TEST(Math, SharesOfASigmoidAreExactHoweverSmall) {
  const auto below = [](Floats x) { return sigmoids(x).below; };
  const auto above = [](Floats x) { return sigmoids(x).above; };
  EXPECT_LE(most_units(-2, 2, below, sigmoid), 4);
  EXPECT_LE(most_units(-86, 86, below, sigmoid), 4);
  EXPECT_LE(most_units(-86, 86, above, [](double x) { return sigmoid(-x); }), 4);
  EXPECT_EQ(sigmoids(splat(-kInfinity)).below[0], 0);
  EXPECT_EQ(sigmoids(splat(kInfinity)).below[0], 1);
  EXPECT_TRUE(std::isnan(sigmoids(splat(kNan)).below[0]));
}

TEST(Math, TanhIsExactHoweverSmall) {
  const auto exact = [](double x) { return std::tanh(x); };
  for (const float most : {1e-20f, 1e-3f, 0.2f, 1.0f, 20.0f}) {
    EXPECT_LE(most_units(-most, most, tanh, exact), 6) << most;
  }
  EXPECT_EQ(tanh(splat(0))[0], 0);
  EXPECT_EQ(tanh(splat(3e38f))[0], 1);
  EXPECT_EQ(tanh(splat(kInfinity))[0], 1);
  EXPECT_EQ(tanh(splat(-kInfinity))[0], -1);
  EXPECT_TRUE(std::isnan(tanh(splat(kNan))[0]));
}

TEST(Math, TheSlopeOfASoftCapIsExactNearTheCap) {
  const auto slope = [](Floats c) { return soft_cap_slope(c, 30); };
  const auto exact = [](double c) { return (1 - c / 30) * (1 + c / 30); };
  EXPECT_LE(most_units(-30, 30, slope, exact), 6);
  EXPECT_LE(most_units(29.99f, 30, slope, exact), 6);
  EXPECT_EQ(slope(splat(-kInfinity))[0], 0);
  EXPECT_LE(most_units(
                -200, 200, [](Floats x) { return soft_cap(x, 30); },
                [](double x) { return 30 * std::tanh(x / 30); }),
            8);
}

TEST(Math, TheNormalDistributionIsExactToItsTail) {
  const auto below = [](Floats x) { return normal(x).below; };
  const auto density = [](Floats x) { return normal(x).density; };
  EXPECT_LE(most_units(-1, 9, below, normal_below), 7);
  EXPECT_LE(most_units(-4, -1, below, normal_below), 7 + 8);
  EXPECT_LE(most_units(-13, -4, below, normal_below), 7 + 85);
  EXPECT_LE(most_units(-1, 1, density, normal_density), 4);
  EXPECT_LE(most_units(-13, 13, density, normal_density), 4 + 85);
  EXPECT_EQ(normal(splat(-kInfinity)).below[0], 0);
  EXPECT_EQ(normal(splat(kInfinity)).below[0], 1);
  EXPECT_TRUE(std::isnan(normal(splat(kNan)).below[0]));
}

TEST(Math, SquareRootsAreRoundedOnce) {
  const auto root = [](double x) { return std::sqrt(x); };
  for (const float scale : {1e-30f, 1.0f, 1e30f}) {
    EXPECT_LE(most_units(scale, 4 * scale, square_root, root), 0.5);
  }
  EXPECT_EQ(square_root(splat(0))[0], 0);
  EXPECT_EQ(square_root(splat(kInfinity))[0], kInfinity);
  EXPECT_TRUE(std::isnan(square_root(splat(kNan))[0]));
}

}  // namespace
}  // namespace lockstep::simd
