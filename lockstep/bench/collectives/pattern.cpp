#include "lockstep/bench/collectives/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kPeriod = 1021;   // prime
constexpr std::uint64_t kStride = 389;  // from one iteration's start to the next
constexpr std::uint32_t kLargest = 1000;

// The largest n such that all whole numbers up to n are values of the dtype.
std::uint32_t largest_exact(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return 127;
    case DType::kU8:
      return 255;
    case DType::kBF16:
      return 1u << 8;
    case DType::kF16:
      return 1u << 11;
    default:
      return 1u << 24;
  }
}

std::uint32_t scramble(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

std::uint32_t stream_value(std::uint32_t stream, std::size_t i, std::uint32_t largest) {
  const auto mixed = scramble(stream * 0x9e3779b9u + static_cast<std::uint32_t>(i));
  return mixed % (largest + 1);
}

void store(std::byte* to, DType dtype, std::uint32_t value) {
  with_type(dtype, [&]<class T>(T) {
    T element;
    if constexpr (std::is_same_v<T, Half>) {
      element = to_half(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      element = to_bfloat16(static_cast<float>(value));
    } else {
      element = static_cast<T>(value);
    }
    std::memcpy(to, &element, sizeof element);
  });
}

}  // namespace

Pattern::Pattern(DType dtype, int terms, std::span<const std::uint32_t> streams)
    : element_(size_of(dtype)), period_(2 * kPeriod * element_) {
  const std::uint32_t largest =
      std::min(kLargest, largest_exact(dtype) / static_cast<std::uint32_t>(terms));
  if (largest == 0) {
    fail(ErrorCode::kInvalidArgument,
         "{} cannot hold an exact sum over {} ranks; bench a wider type", name(dtype), terms);
  }
  for (std::size_t i = 0; i < kPeriod; ++i) {
    std::uint32_t sum = 0;
    for (const std::uint32_t stream : streams) sum += stream_value(stream, i, largest);
    store(period_.data() + i * element_, dtype, sum);
    store(period_.data() + (kPeriod + i) * element_, dtype, sum);
  }
}

std::size_t Pattern::start(std::uint64_t iteration) const {
  return static_cast<std::size_t>(iteration % kPeriod * kStride % kPeriod) * element_;
}

void Pattern::write(std::byte* to, std::size_t count, std::uint64_t iteration) const {
  const std::byte* from = period_.data() + start(iteration);
  for (; count > kPeriod; count -= kPeriod, to += kPeriod * element_) {
    std::memcpy(to, from, kPeriod * element_);
  }
  std::memcpy(to, from, count * element_);
}

std::size_t Pattern::first_wrong(const std::byte* data, std::size_t count,
                                 std::uint64_t iteration) const {
  const std::byte* expected = period_.data() + start(iteration);
  for (std::size_t at = 0; at < count; at += kPeriod) {
    const std::size_t piece = std::min(kPeriod, count - at);
    const std::byte* got = data + at * element_;
    if (std::memcmp(got, expected, piece * element_) == 0) continue;
    const auto differs = std::mismatch(got, got + piece * element_, expected).first - got;
    return at + static_cast<std::size_t>(differs) / element_;
  }
  return count;
}

Expectation::Expectation(const Task& task, int rank, int ranks)
    : element_(size_of(task.dtype)), block_(extent(task, ranks).block) {
  const auto n = static_cast<std::uint32_t>(ranks);
  const auto me = static_cast<std::uint32_t>(rank);
  // What rank `from` gives for block `block`.
  const auto stream = [&](std::uint32_t from, std::uint32_t block) { return from * n + block; };
  const auto single = [&](std::uint32_t s) { return Pattern(task.dtype, ranks, {&s, 1}); };
  const auto sum = [&](std::uint32_t block) {
    std::vector<std::uint32_t> streams;
    for (std::uint32_t from = 0; from < n; ++from) streams.push_back(stream(from, block));
    return Pattern(task.dtype, ranks, streams);
  };
  switch (task.op) {
    case Collective::kAllReduce:
      in_.push_back(single(stream(me, 0)));
      out_.push_back(sum(0));
      break;
    case Collective::kBroadcast:
      in_.push_back(single(stream(me, 0)));
      out_.push_back(single(stream(static_cast<std::uint32_t>(task.root), 0)));
      break;
    case Collective::kAllGather:
      in_.push_back(single(stream(me, 0)));
      for (std::uint32_t from = 0; from < n; ++from) out_.push_back(single(stream(from, 0)));
      break;
    case Collective::kReduceScatter:
      for (std::uint32_t block = 0; block < n; ++block) in_.push_back(single(stream(me, block)));
      out_.push_back(sum(me));
      break;
    case Collective::kAllToAll:
      for (std::uint32_t to = 0; to < n; ++to) in_.push_back(single(stream(me, to)));
      for (std::uint32_t from = 0; from < n; ++from) out_.push_back(single(stream(from, me)));
      break;
    default:
      fail(ErrorCode::kUnsupported, "{} is not one of the benched collectives", name(task.op));
  }
}

void Expectation::write_input(std::byte* in, std::uint64_t iteration) const {
  for (std::size_t i = 0; i < in_.size(); ++i) {
    in_[i].write(in + i * block_ * element_, block_, iteration);
  }
}

std::string Expectation::check_output(const std::byte* out, std::uint64_t iteration) const {
  for (std::size_t i = 0; i < out_.size(); ++i) {
    const std::size_t wrong = out_[i].first_wrong(out + i * block_ * element_, block_, iteration);
    if (wrong < block_) {
      return fmt::format("element {} of block {} (of {} elements) is wrong in call {}", wrong, i,
                         block_, iteration);
    }
  }
  return {};
}

}  // namespace lockstep::bench
