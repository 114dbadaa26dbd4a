// Reduction operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/tensor/dtype.h"

namespace lockstep {

// A reduction supplied by the user. It must be associative, commutative and the same on all ranks.
struct UserReduction {
  // accumulator[i] = combine(accumulator[i], operand[i]) for i < count.
  using Combine = void (*)(void* accumulator, const void* operand, std::size_t count, DType dtype,
                           void* context);
  std::string name;  // part of the fingerprint: ranks that name it differently get an error
  Combine combine = nullptr;
  void* context = nullptr;
};

// sum, prod, min and max in the element type (integers wrap around). mean is the sum divided by the
// number of ranks, for integers rounded towards zero. A NaN operand makes the result of min and max
// a NaN. 16-bit floats are combined in 32 bits.
struct ReduceOp {
  enum Kind : std::uint8_t { kSum, kProd, kMin, kMax, kMean, kUser };
  Kind kind = kSum;
  const UserReduction* user = nullptr;  // not owned; outlives the operation

  constexpr ReduceOp(Kind k = kSum) : kind(k) {}
  explicit constexpr ReduceOp(const UserReduction& u) : kind(kUser), user(&u) {}
};

std::string_view name(const ReduceOp& op);

}  // namespace lockstep
