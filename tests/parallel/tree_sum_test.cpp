#include "lockstep/parallel/gradients/tree_sum.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/math/counter_rng.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kElements = 37;
using Floats = std::vector<float>;

// Numbers of very different sizes, so that every order of adding them gives other bits.
Floats values_of(std::uint64_t index) {
  Floats values(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    const auto word = random_word(7, index, i);
    values[i] = std::ldexp(static_cast<float>(word % 65521) - 32760, static_cast<int>(word >> 28));
  }
  return values;
}

Floats plain(std::uint64_t first, std::uint64_t count) {
  if (count == 1) return values_of(first);
  Floats left = plain(first, count / 2);
  const Floats right = plain(first + count / 2, count / 2);
  for (std::size_t i = 0; i < kElements; ++i) left[i] += right[i];
  return left;
}

Floats by_tree(std::uint64_t first, std::int64_t count) {
  const auto ops = make_reference_ops();
  TreeSum tree(*ops, {}, kElements, count);
  Floats last;
  for (std::int64_t i = 0; i < count; ++i) {
    last = values_of(first + static_cast<std::uint64_t>(i));
    if (i + 1 < count) tree.keep(tensor_of(std::span(last)), i);
  }
  // In two parts, as buckets do.
  tree.finish(tensor_of(std::span(last).first(5)), 0, count - 1);
  tree.finish(tensor_of(std::span(last).subspan(5)), 5, count - 1);
  return last;
}

TEST(TreeSum, IsThatOfTheWholeTree) {
  for (const std::int64_t count : {1, 2, 4, 8, 32}) {
    EXPECT_EQ(by_tree(3, count), plain(3, static_cast<std::uint64_t>(count))) << count;
  }
}

TEST(TreeSum, OfHalvesIsThatOfTheWhole) {
  Floats left = by_tree(0, 4);
  const Floats right = by_tree(4, 4);
  for (std::size_t i = 0; i < kElements; ++i) left[i] += right[i];
  EXPECT_EQ(left, by_tree(0, 8));
}

TEST(TreeSum, OfAnyNumberOfRowsIsTheirSum) {
  for (const std::int64_t count : {3, 5, 6, 7, 11}) {
    const Floats sum = by_tree(0, count);
    for (std::size_t i = 0; i < kElements; ++i) {
      double exact = 0;
      double sizes = 0;
      for (std::int64_t k = 0; k < count; ++k) {
        const double value = values_of(static_cast<std::uint64_t>(k))[i];
        exact += value;
        sizes += std::abs(value);
      }
      EXPECT_NEAR(sum[i], exact, sizes * 1e-6) << count;
    }
  }
}

TEST(TreeSum, KeepsARowForEveryLevel) {
  EXPECT_EQ(TreeSum::bytes(10, 1), 0u);
  EXPECT_EQ(TreeSum::bytes(10, 2), 40u);
  EXPECT_EQ(TreeSum::bytes(10, 8), 120u);
  EXPECT_EQ(TreeSum::bytes(10, 9), 160u);
}

}  // namespace
}  // namespace lockstep::parallel
