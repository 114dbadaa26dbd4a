#include "lockstep/data/token_file/windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data::windows_test {
namespace {

constexpr std::uint64_t kSeeds[] = {0, 1, 0xffffffffffffffffu};

std::vector<std::uint64_t> order(std::uint64_t count, std::uint64_t key, std::uint64_t round) {
  std::vector<std::uint64_t> places;
  for (std::uint64_t i = 0; i < count; ++i) places.push_back(shuffled(i, count, key, round));
  return places;
}

// How often each position comes in an epoch.
std::vector<int> visits(const WindowOrder& windows, std::uint64_t length, std::uint64_t epoch) {
  std::vector<int> count(windows.positions());
  for (std::uint64_t i = 0; i < windows.windows(); ++i) {
    const std::uint64_t first = windows.first_position(epoch * windows.windows() + i);
    EXPECT_LT(first, windows.positions());
    for (std::uint64_t j = 0; j < length; ++j) ++count[(first + j) % windows.positions()];
  }
  return count;
}

TEST(Windows, ShufflingIsABijectionOfEverySize) {
  for (std::uint64_t count = 1; count <= 1000; ++count) {
    std::vector<std::uint64_t> places = order(count, count, 3);
    std::sort(places.begin(), places.end());
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(places[i], i) << "of " << count;
  }
}

TEST(Windows, ShufflingIsABijectionOfLargeOddSizes) {
  for (const std::uint64_t count : {65'537u, 131'071u, 200'003u}) {
    std::vector<bool> seen(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t place = shuffled(i, count, 7, 0);
      ASSERT_LT(place, count);
      ASSERT_FALSE(seen[place]) << place << " of " << count;
      seen[place] = true;
    }
  }
}

TEST(Windows, ShufflingStaysBelowTheLargestCounts) {
  for (const std::uint64_t count : {(std::uint64_t{1} << 40) + 1, ~std::uint64_t{0}}) {
    std::set<std::uint64_t> places;
    for (std::uint64_t i = 0; i < 100; ++i) {
      places.insert(shuffled(i, count, 7, 0));
      places.insert(shuffled(count - 1 - i, count, 7, 0));
    }
    EXPECT_EQ(places.size(), 200u);
    EXPECT_LT(*places.rbegin(), count);
  }
}

TEST(Windows, EveryKeyAndRoundHasAnOrderOfItsOwn) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t key = 0; key < 10; ++key) {
    for (std::uint64_t round = 0; round < 10; ++round) orders.insert(order(97, key, round));
  }
  EXPECT_EQ(orders.size(), 100u);
  EXPECT_EQ(order(97, 4, 2), order(97, 4, 2));
}

// Of many orders of n things each place should hold each thing 1/n of the time.
TEST(Windows, OrdersAreEven) {
  constexpr std::uint64_t kCount = 5, kOrders = 4000;
  std::vector<std::vector<int>> held(kCount, std::vector<int>(kCount));
  for (std::uint64_t round = 0; round < kOrders; ++round) {
    for (std::uint64_t i = 0; i < kCount; ++i) ++held[i][shuffled(i, kCount, 11, round)];
  }
  for (const auto& places : held) {
    for (const int times : places) EXPECT_NEAR(times, kOrders / kCount, 150);
  }
}

TEST(Windows, AnEpochHasNoPositionTwice) {
  for (const std::uint64_t seed : kSeeds) {
    for (const auto& [positions, length] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
             {1, 1}, {17, 17}, {17, 1}, {17, 3}, {33, 17}, {1000, 7}, {1024, 64}}) {
      const WindowOrder windows(positions, length, seed);
      EXPECT_EQ(windows.windows(), positions / length);
      for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
        const std::vector<int> count = visits(windows, length, epoch);
        EXPECT_LE(*std::max_element(count.begin(), count.end()), 1);
        EXPECT_EQ(std::count(count.begin(), count.end(), 0), positions % length);
      }
    }
  }
}

TEST(Windows, TwoEpochsThatFollowEachOtherCoverTheData) {
  for (const std::uint64_t seed : kSeeds) {
    for (const auto& [positions, length] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
             {1, 1}, {5, 3}, {33, 17}, {50, 17}, {1023, 64}, {1025, 64}}) {
      const WindowOrder windows(positions, length, seed);
      for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
        std::vector<int> both = visits(windows, length, epoch);
        const std::vector<int> next = visits(windows, length, epoch + 1);
        for (std::size_t i = 0; i < both.size(); ++i) both[i] += next[i];
        EXPECT_EQ(std::count(both.begin(), both.end(), 0), 0)
            << positions << " by " << length << " from epoch " << epoch;
      }
    }
  }
}

TEST(Windows, EpochsCutTheStreamDifferently) {
  for (const std::uint64_t seed : kSeeds) {
    const WindowOrder windows(1024, 64, seed);  // without a rest that would move the cuts by itself
    std::set<std::uint64_t> phases;
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
      phases.insert(windows.first_position(epoch * windows.windows()) % 64);
    }
    EXPECT_GE(phases.size(), 2u);
  }
}

TEST(Windows, FarEpochsOfLongStreamsStayInside) {
  const WindowOrder windows(~std::uint64_t{0} - 5, 1024, 3);
  EXPECT_LT(windows.first_position(~std::uint64_t{0}), windows.positions());
  EXPECT_NE(windows.first_position(0), windows.first_position(1));
}

TEST(Windows, RefusesAStreamShorterThanAWindow) {
  EXPECT_THROW(WindowOrder(4, 5, 0), Error);
  EXPECT_THROW(WindowOrder(4, 0, 0), Error);
  EXPECT_THROW(WindowOrder(0, 1, 0), Error);
  EXPECT_THROW(shuffled(3, 3, 0, 0), Error);
}

}  // namespace
}  // namespace lockstep::data::windows_test
