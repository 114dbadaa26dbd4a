#include "lockstep/parallel/compression/largest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace lockstep::parallel {
namespace {

// Selections among fewer candidates would take longer than looking at the elements.
constexpr std::size_t kMinCapacity = 4096;

// The sample has at most kLargestSample elements, and at most one of every kSparsestSample
// elements.
constexpr std::size_t kLargestSample = 16384;
constexpr std::size_t kSparsestSample = 32;

std::size_t candidate_capacity(std::size_t elements, std::size_t kept) {
  return std::min(elements, std::max(2 * kept, kMinCapacity)) + kRun;
}

// The digits of a magnitude, from the most significant.
struct Digit {
  int shift;
  std::uint32_t mask;
};
constexpr Digit kDigits[] = {{20, 0x7ff}, {10, 0x3ff}, {0, 0x3ff}};

struct Limit {
  Magnitude magnitude;  // of the least that is kept
  std::size_t equals;   // how many of that magnitude are kept
};

// Finds the limit digit by digit: among candidates with the digits found so far, the counts of the
// next digit give that digit of the smallest kept magnitude.
Limit find_limit(const Candidates& candidates, std::size_t kept) {
  std::array<std::uint32_t, 2048> counts;
  std::uint32_t prefix = 0;
  std::uint32_t prefix_mask = 0;
  for (const auto& [shift, mask] : kDigits) {
    counts.fill(0);
    for (std::size_t i = 0; i < candidates.count; ++i) {
      const auto magnitude = static_cast<std::uint32_t>(candidates.magnitudes[i]);
      counts[(magnitude >> shift) & mask] += (magnitude & prefix_mask) == prefix;
    }
    std::uint32_t digit = mask;
    for (; counts[digit] < kept; --digit) kept -= counts[digit];
    prefix |= digit << shift;
    prefix_mask |= mask << shift;
  }
  return {static_cast<Magnitude>(prefix), kept};
}

// Leaves the `kept` largest, in their order; gives the least of their magnitudes.
Magnitude keep_largest(Candidates& candidates, std::size_t kept) {
  auto [limit, equals] = find_limit(candidates, kept);
  std::size_t found = 0;
  for (std::size_t i = 0; i < candidates.count; ++i) {
    const Magnitude magnitude = candidates.magnitudes[i];
    const bool is_equal = magnitude == limit && equals > 0;
    equals -= is_equal;
    candidates.magnitudes[found] = magnitude;
    candidates.positions[found] = candidates.positions[i];
    found += is_equal || magnitude > limit;
  }
  candidates.count = found;
  return limit;
}

constexpr Magnitude kBelowAll = -1;  // of a threshold: zeros are candidates too

// A threshold with somewhat more than `kept` elements above, if the sample is no bad one. It is
// made in the memory of the candidates.
Magnitude guess_threshold(std::span<const float> values, const float* residual, std::size_t kept,
                          Candidates sample) {
  const std::size_t stride = std::max(kSparsestSample, values.size() / kLargestSample);
  sample.count = std::min(values.size() / stride, sample.capacity);
  for (std::size_t i = 0; i < sample.count; ++i) {
    const std::size_t at = i * stride;
    const float sum = residual == nullptr ? values[at] : values[at] + residual[at];
    sample.magnitudes[i] = std::bit_cast<Magnitude>(std::fabs(sum));
  }
  const double share = static_cast<double>(kept) / static_cast<double>(values.size());
  const double expected = share * static_cast<double>(sample.count);
  const auto above = static_cast<std::size_t>(expected + 4 * std::sqrt(expected) + 4);
  if (above >= sample.count / 2) return kBelowAll;
  return find_limit(sample, above).magnitude - 1;
}

// The `kept` largest of those above the threshold, or all where there are less.
void collect_largest(std::span<const float> values, float* residual, std::size_t kept,
                     Magnitude threshold, Candidates& candidates, Magnitude& largest) {
  const CompressionKernels& kernels = compression_kernels();
  candidates.count = 0;
  std::size_t done = 0;
  for (;;) {
    done = kernels.collect(values.data(), residual, done, values.size(), threshold, candidates,
                           largest);
    if (done == values.size()) break;
    threshold = keep_largest(candidates, kept);
  }
  if (candidates.count > kept) keep_largest(candidates, kept);
}

}  // namespace

std::size_t largest_scratch_bytes(std::size_t elements, std::size_t kept) {
  return candidate_capacity(elements, kept) * (sizeof(std::uint32_t) + sizeof(Magnitude));
}

Largest find_largest(std::span<const float> values, float* residual, std::size_t kept,
                     std::byte* scratch) {
  const std::size_t capacity = candidate_capacity(values.size(), kept);
  auto* positions = reinterpret_cast<std::uint32_t*>(scratch);
  Candidates candidates{.positions = positions,
                        .magnitudes = reinterpret_cast<Magnitude*>(positions + capacity),
                        .count = 0,
                        .capacity = capacity};
  Magnitude largest = 0;
  const Magnitude guess = guess_threshold(values, residual, kept, candidates);
  collect_largest(values, residual, kept, guess, candidates, largest);
  if (candidates.count < kept) {
    const std::span<const float> sums =
        residual == nullptr ? values : std::span<const float>(residual, values.size());
    collect_largest(sums, nullptr, kept, kBelowAll, candidates, largest);
  }
  return {.positions = {positions, kept}, .all_finite = largest < kInfiniteMagnitude};
}

}  // namespace lockstep::parallel
