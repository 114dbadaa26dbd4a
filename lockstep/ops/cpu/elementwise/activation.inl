// The activations with their derivatives. Part of a file of kernels (vector.inl).
//
// An activation gives the same bits wherever it is fused, although the compiler may fuse products
// and sums. So no sum here has two products to choose from, and callers must not add to the
// returned value.
#pragma once

#include "lockstep/base/simd/math.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

// With s the sigmoid, z/2 (1 + tanh(v)) is z s(2 v), without the cancellation of 1 + tanh; and s' =
// s (1 - s).
inline Floats gelu_tanh(Floats z, Floats& derivative) {
  constexpr float kSlope = 1.59576912160573071f;  // 2 sqrt(2 / pi)
  constexpr float kCubic = 0.044715f * kSlope;
  // Where s is 0 or 1, so that z^2 stays finite.
  const Floats inner = min(max(z, splat(-12)), splat(12));
  const Floats square = inner * inner;
  const Shares s = sigmoids(inner * (square * kCubic + kSlope));
  const Floats y = z * s.below;
  const Floats slope = square * (3 * kCubic) + kSlope;
  derivative = y * s.above * slope + s.below;
  return y;
}

inline Floats gelu_erf(Floats z, Floats& derivative) {
  const Normal n = normal(z);
  derivative = z * n.density + n.below;
  return z * n.below;
}

inline Floats relu(Floats z, Floats& derivative) {
  derivative = z > splat(0) ? splat(1) : splat(0);
  return z < splat(0) ? splat(0) : z;
}

// z / (1 + e^-z).
inline Floats silu(Floats z, Floats& derivative) {
  const Shares s = sigmoids(z);
  const Floats y = z * s.below;
  derivative = y * s.above + s.below;
  return y;
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
