// Sums of 16 bits among ranks of one node: f32 accumulation in the order of ranks, rounded once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/base/math/half.h"
#include "lockstep/comm/native/threads.h"

namespace lockstep {
namespace {

BFloat16 rounded(float x, BFloat16) { return to_bfloat16(x); }
Half rounded(float x, Half) { return to_half(x); }

// Of every size of exponents, so that a sum that is rounded on its way comes out otherwise.
template <class T>
T number(int rank, std::size_t i) {
  const auto seed = static_cast<std::uint64_t>(rank);
  const float scale = std::ldexp(1.f, static_cast<int>(random_word(seed, 1, i) % 9) - 4);
  return rounded(scale * normal_at(seed, 2, i), T{});
}

template <class T>
std::vector<T> numbers(int rank, std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = number<T>(rank, i);
  return all;
}

template <class T>
std::vector<T> sum_of_ranks(std::span<const std::vector<T>> inputs, std::size_t count) {
  std::vector<T> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    float sum = to_float(inputs[0][i]);
    for (const std::vector<T>& input : inputs.subspan(1)) sum += to_float(input[i]);
    sums[i] = rounded(sum, T{});
  }
  return sums;
}

// A rank's vector is the beginning of its `inputs`.
template <class T>
void expect_rounded_once(std::span<const std::vector<T>> inputs, std::size_t count) {
  const int ranks = static_cast<int>(inputs.size());
  const std::vector<T> expected = sum_of_ranks(inputs, count);
  CommOptions options;
  options.measure = false;
  options.window = std::size_t{64} * 1024;  // so that private vectors take several
  run_threads(
      ranks,
      [&](Communicator& comm) {
        const std::span<const T> input = std::span(inputs[comm.rank()]).first(count);
        std::vector<T> output(count);
        comm.all_reduce(input, std::span(output));
        EXPECT_TRUE(output == expected) << "private, " << ranks << " ranks, " << count;
        const SymmetricBuffer memory = comm.allocate(count * sizeof(T));
        const std::span<T> data = memory.as<T>().first(count);
        std::ranges::copy(input, data.begin());
        comm.all_reduce(data);
        EXPECT_TRUE(std::ranges::equal(data, expected))
            << "symmetric, " << ranks << " ranks, " << count;
      },
      options);
}

template <class T>
void expect_rounded_once() {
  std::vector<std::vector<T>> inputs;
  for (int rank = 0; rank < 7; ++rank) inputs.push_back(numbers<T>(rank, 200003));
  for (const std::size_t ranks : {2u, 3u, 4u, 7u}) {
    for (const std::size_t count : {1u, 37u, 1000u, 5001u, 200003u}) {
      expect_rounded_once<T>(std::span(inputs).first(ranks), count);
    }
  }
}

// Inline, one-shot, symmetric and windowed.
TEST(Rounding, IsDoneOnceByEveryPathInsideAMachine) {
  expect_rounded_once<BFloat16>();
  expect_rounded_once<Half>();
}

TEST(Rounding, OnTheWayWouldBeSeen) {
  const auto on_the_way = [](int ranks, std::size_t i) {
    BFloat16 sum = number<BFloat16>(0, i);
    for (int rank = 1; rank < ranks; ++rank) {
      sum = to_bfloat16(to_float(sum) + to_float(number<BFloat16>(rank, i)));
    }
    return sum;
  };
  const std::vector<std::vector<BFloat16>> inputs = {
      numbers<BFloat16>(0, 1000), numbers<BFloat16>(1, 1000), numbers<BFloat16>(2, 1000)};
  const std::vector<BFloat16> once = sum_of_ranks<BFloat16>(inputs, 1000);
  int others = 0;
  for (std::size_t i = 0; i < once.size(); ++i) others += on_the_way(3, i) == once[i] ? 0 : 1;
  EXPECT_GT(others, 50);
}

}  // namespace
}  // namespace lockstep
