// Sums over runs of elements. Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/base/simd/vector.inl"

namespace lockstep::simd {
namespace {

// Four partial sums that take vectors in turn, so that an addition need not wait for the one before
// it, and rounding errors grow more slowly.
struct Sum {
  Floats parts[4] = {};
  float total() const { return sum_of_lanes((parts[0] + parts[1]) + (parts[2] + parts[3])); }
};

// for_vectors with a third argument for f: the partial sum whose turn it is.
template <class F>
void for_vectors_in_turn(std::size_t count, F&& f) {
  constexpr std::integral_constant<std::size_t, kLanes> kWhole;
  std::size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    f(i, kWhole, 0);
    f(i + kLanes, kWhole, 1);
    f(i + 2 * kLanes, kWhole, 2);
    f(i + 3 * kLanes, kWhole, 3);
  }
  for (; i + kLanes <= count; i += kLanes) f(i, kWhole, 0);
  if (i < count) f(i, count - i, 1);
}

// The sum of f(index, part) over the vectors of `count` elements; lanes that do not count are 0.
template <class F>
float sum_over(std::size_t count, F&& f) {
  Sum sum;
  for_vectors_in_turn(count,
                      [&](std::size_t i, auto part, int turn) { sum.parts[turn] += f(i, part); });
  return sum.total();
}

}  // namespace
}  // namespace lockstep::simd
