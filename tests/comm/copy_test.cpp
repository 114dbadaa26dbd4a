#include "lockstep/comm/shared/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace lockstep::shared {
namespace {

constexpr std::size_t kLong = std::size_t{256} * 1024;  // and more are asked for ahead everywhere

using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);

// Copies between all offsets within a line, with guards on either side.
void expect_copies(Copy copy, std::size_t bytes) {
  constexpr std::size_t kOffsets = 64;
  const std::size_t step = bytes < kLong ? 7 : 31;
  constexpr std::byte kGuard{0xa5};
  std::vector<std::byte> from(bytes + kOffsets);
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<std::byte>((i * 2654435761U) >> 13);
  }
  for (std::size_t source = 0; source < kOffsets; source += step) {
    for (std::size_t target = 0; target < kOffsets; target += step) {
      std::vector<std::byte> to(bytes + 2 * kOffsets, kGuard);
      copy(to.data() + target, from.data() + source, bytes);
      for (std::size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= target && i < target + bytes;
        ASSERT_EQ(to[i], inside ? from[source + i - target] : kGuard)
            << bytes << " bytes from " << source << " to " << target << ", at " << i;
      }
    }
  }
}

constexpr std::size_t kSizes[] = {0,    1,    63,   64,   65,   127,  128,
                                  1023, 1024, 2048, 2111, 2112, 4321, kLong + 77};

TEST(SharedCopy, TakesEveryByteAndNoOther) {
  for (const std::size_t bytes : kSizes) expect_copies(copy_bytes, bytes);
}

TEST(SharedCopy, PastTheCacheTakesEveryByteAndNoOther) {
  for (const std::size_t bytes : kSizes) expect_copies(stream_bytes, bytes);
}

// To several places, of which one is where it comes from; gives back the last.
template <void (*kCopy)(std::span<std::byte* const>, const std::byte*, std::size_t)>
void copy_to_three(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::vector<std::byte> source(from, from + bytes);
  std::vector<std::byte> other(bytes + 1, std::byte{0x5a});
  const std::array<std::byte*, 3> places = {other.data(), source.data(), to};
  kCopy(std::span(places), source.data(), bytes);
  EXPECT_EQ(other.back(), std::byte{0x5a});
  other.pop_back();
  EXPECT_EQ(other, source);
  EXPECT_TRUE(std::equal(source.begin(), source.end(), from));
}

TEST(SharedCopy, ToSeveralPlacesTakesEveryByteAndNoOther) {
  for (const std::size_t bytes : kSizes) {
    expect_copies(copy_to_three<copy_to_all>, bytes);
    expect_copies(copy_to_three<stream_to_all>, bytes);
  }
}

TEST(SharedCopy, ToOnePlaceOrNoneIsACopyOrNothing) {
  std::vector<std::byte> data(4321, std::byte{7});
  std::vector<std::byte> to(data.size());
  std::byte* const place = to.data();
  copy_to_all({}, data.data(), data.size());
  stream_to_all({}, data.data(), data.size());
  copy_to_all({&place, 1}, data.data(), data.size());
  EXPECT_EQ(to, data);
  std::fill(to.begin(), to.end(), std::byte{0});
  stream_to_all({&place, 1}, data.data(), data.size());
  EXPECT_EQ(to, data);
}

TEST(SharedCopy, OfSomethingOntoItselfIsNothing) {
  std::vector<std::byte> data(4321, std::byte{7});
  const std::vector<std::byte> before = data;
  copy_bytes(data.data(), data.data(), data.size());
  stream_bytes(data.data(), data.data(), data.size());
  EXPECT_EQ(data, before);
}

}  // namespace
}  // namespace lockstep::shared
