#include "lockstep/data/token_file/windows.h"

#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"

namespace lockstep::data {
namespace {

// Rounds of the network; three would pass for random, small domains are mixed well by more.
constexpr std::uint32_t kFeistelRounds = 6;
// Draws of a stride before one that cuts alike is taken: there may be no other.
constexpr std::uint64_t kStrideDraws = 64;

// What counters of the same key are for.
enum class Purpose : std::uint32_t { kOrder = 0, kStart = 1, kStride = 2 };

constexpr std::uint64_t random_bits(std::uint64_t seed, Purpose purpose, std::uint64_t number) {
  const RandomWords words =
      philox(seed, {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0,
                    ~static_cast<std::uint32_t>(purpose)});
  return std::uint64_t{words[1]} << 32 | words[0];
}

// One walk through the network: a bijection of the numbers of 2 * half_bits bits.
std::uint64_t feistel(std::uint64_t value, int half_bits, std::uint64_t key, std::uint64_t round) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (std::uint32_t i = 0; i < kFeistelRounds; ++i) {
    const RandomWords words =
        philox(key, {static_cast<std::uint32_t>(right), static_cast<std::uint32_t>(round),
                     static_cast<std::uint32_t>(round >> 32), i});
    const std::uint64_t mixed = left ^ (words[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

}  // namespace

std::uint64_t shuffled(std::uint64_t index, std::uint64_t count, std::uint64_t key,
                       std::uint64_t round) {
  if (index >= count) {
    fail(ErrorCode::kInvalidArgument, "index {} is outside a shuffle of {} numbers", index, count);
  }
  if (count == 1) return 0;
  const int half_bits = (std::bit_width(count - 1) + 1) / 2;
  do {
    index = feistel(index, half_bits, key, round);
  } while (index >= count);
  return index;
}

WindowOrder::WindowOrder(std::uint64_t positions, std::uint64_t length, std::uint64_t seed)
    : positions_(positions), length_(length), windows_(0), seed_(seed), start_(0), stride_(0) {
  if (length == 0 || positions < length) {
    fail(ErrorCode::kInvalidArgument, "{} positions are too few for a window of {}", positions,
         length);
  }
  windows_ = positions / length;
  start_ = random_bits(seed, Purpose::kStart, 0) % positions;
  // An epoch leaves out the positions before its start. Those of the next epoch are others where
  // the starts are at least as far apart, both ways around the circle.
  const std::uint64_t left_out = positions % length;
  for (std::uint64_t draw = 0; draw < kStrideDraws; ++draw) {
    stride_ = left_out + random_bits(seed, Purpose::kStride, draw) % (positions - 2 * left_out + 1);
    if (stride_ % length != 0) break;
  }
}

std::uint64_t WindowOrder::start_of(std::uint64_t epoch) const {
  __extension__ using Wide = unsigned __int128;
  const Wide moved = Wide{epoch % positions_} * stride_ + start_;
  return static_cast<std::uint64_t>(moved % positions_);
}

std::uint64_t WindowOrder::first_position(std::uint64_t sequence) const {
  const std::uint64_t epoch = sequence / windows_;
  const std::uint64_t window = shuffled(sequence % windows_, windows_, seed_, epoch);
  const std::uint64_t from_start = window * length_;
  const std::uint64_t start = start_of(epoch);
  // start + from_start, without going over the largest number.
  return from_start < positions_ - start ? start + from_start : from_start - (positions_ - start);
}

}  // namespace lockstep::data
