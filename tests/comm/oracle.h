// What collectives must compute, by the plainest means: every rank's input is a pure function of
// (rank, index), so every rank can compute the contribution of any other.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "lockstep/comm/call.h"

namespace lockstep::testing {

// Small whole numbers, so that sums and products of 16-bit floats are exact.
inline int element_of(int rank, std::size_t index) {
  return static_cast<int>((static_cast<std::size_t>(rank) * 7 + index * 3 + index / 5) % 3) + 1;
}

template <class T>
T make_element(std::int64_t value) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

inline std::int64_t reduced_element(int ranks, std::size_t index, ReduceOp::Kind op) {
  std::int64_t result = element_of(0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::int64_t next = element_of(rank, index);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMean:
        result += next;
        break;
      case ReduceOp::kProd:
        result *= next;
        break;
      case ReduceOp::kMin:
        result = std::min(result, next);
        break;
      case ReduceOp::kMax:
        result = std::max(result, next);
        break;
      case ReduceOp::kUser:
        break;
    }
  }
  return result;
}

// The reduced element as the type has it; mean divides.
template <class T>
T expected_reduced(int ranks, std::size_t index, ReduceOp::Kind op) {
  const std::int64_t whole = reduced_element(ranks, index, op);
  if (op != ReduceOp::kMean) return make_element<T>(whole);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<T>(whole) / ranks);
  } else if constexpr (sizeof(T) == 8) {
    return static_cast<double>(whole) / ranks;
  } else {
    const float mean = static_cast<float>(whole) / static_cast<float>(ranks);
    if constexpr (std::is_same_v<T, Half>) return to_half(mean);
    if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(mean);
    if constexpr (std::is_same_v<T, float>) return mean;
  }
}

template <class T>
std::vector<T> input_of(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = make_element<T>(element_of(rank, i));
  return values;
}

// Element i of the block that rank `from` has for all ranks, or for rank `to`.
template <class T>
T block_element(int from, int to, std::size_t i) {
  return make_element<T>(element_of(from + 3 * to, i));
}

}  // namespace lockstep::testing
