// The activations with their derivatives, for kernels: on one float, in f32.
//
// An activation gives the same bits wherever it is fused: every product and sum is an intrinsic
// that the compiler neither splits nor fuses. The formulas are those of the CPU
// (ops/cpu/elementwise/activation.inl); exponentials and reciprocals are the GPU's own.
//
//   float derivative;
//   const float y = activate<ops::Activation::kGeluTanh, float>(z, derivative);
//
// A caller that does not read the derivative does not pay for it: the compiler removes it.
#pragma once

#include <cuda_runtime.h>

#include "lockstep/ops/arguments.h"

namespace lockstep::cuda {

// 1 / x for x in [1, 2^126], to one unit in the last place.
__device__ __forceinline__ float fast_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Two numbers whose sum is 1. Each is computed by itself, so that it is exact to a few units in its
// own last place, however small it is.
struct Shares {
  float below;
  float above;
};

// The precision of an exponential: to the last places of f32, or with a relative error of about
// 1e-6, which is enough for 16-bit results and takes a quarter of the instructions.
enum class Exponential { kExact, kCoarse };
template <class T>
constexpr Exponential kExponentialFor = sizeof(T) == 2 ? Exponential::kCoarse : Exponential::kExact;

// 1 / (1 + e^-x) and 1 / (1 + e^x).
template <Exponential kExponential>
__device__ __forceinline__ Shares sigmoids(float x) {
  const float e = kExponential == Exponential::kCoarse ? __expf(-fabsf(x)) : expf(-fabsf(x));
  const float large = fast_reciprocal(__fadd_rn(1.0f, e));
  const float small = __fmul_rn(e, large);
  const bool positive = x > 0.0f;
  return {positive ? large : small, positive ? small : large};
}

// With s the sigmoid, z/2 (1 + tanh(v)) is z s(2 v), without the cancellation of 1 + tanh; and s' =
// s (1 - s).
template <Exponential kExponential>
__device__ __forceinline__ float gelu_tanh(float z, float& derivative) {
  constexpr float kSlope = 1.59576912160573071f;  // 2 sqrt(2 / pi)
  constexpr float kCubic = 0.044715f * kSlope;
  // Beyond this s is 0 or 1, and the bound keeps z^2 finite.
  const float inner = fminf(fmaxf(z, -12.0f), 12.0f);
  const float square = __fmul_rn(inner, inner);
  const Shares s = sigmoids<kExponential>(__fmul_rn(inner, __fmaf_rn(square, kCubic, kSlope)));
  const float y = __fmul_rn(z, s.below);
  const float slope = __fmaf_rn(square, 3 * kCubic, kSlope);
  derivative = __fmaf_rn(__fmul_rn(y, s.above), slope, s.below);
  return y;
}

// The normal distribution.
struct Normal {
  float below;    // the probability of a number below z
  float density;  // at z
};

// With a = |z|, the probability of a number below -a is e^(-a^2/2) m(a), and m(a) falls slowly,
// like 1 / a. So m is t times a polynomial of t = 1 / (1 + 0.35 a): the minimax one of degree 8 for
// a up to 13.3, where e^(-a^2/2) becomes 0, exact to 3.2e-8 of its value. It is written in w, which
// goes from -1 to 1, so that its rounding errors stay small.
__device__ __forceinline__ Normal normal(float z) {
  constexpr float kHalfWidth = 0.41158267020335986f;  // of the range of t, which ends at 1
  const float a = fminf(16.0f, fabsf(z));
  const float e = expf(__fmul_rn(__fmul_rn(a, a), -0.5f));
  const float t = fast_reciprocal(__fmaf_rn(a, 0.35f, 1.0f));
  const float w = __fmaf_rn(t, 1 / kHalfWidth, 1 - 1 / kHalfWidth);
  float p = -2.39756064801e-5f;
  p = __fmaf_rn(p, w, 1.35336672747e-5f);
  p = __fmaf_rn(p, w, 2.6604229579e-4f);
  p = __fmaf_rn(p, w, -3.46521655172e-4f);
  p = __fmaf_rn(p, w, -2.89377193308e-3f);
  p = __fmaf_rn(p, w, 3.43265606745e-3f);
  p = __fmaf_rn(p, w, 5.11475817599e-2f);
  p = __fmaf_rn(p, w, 1.62559147696e-1f);
  p = __fmaf_rn(p, w, 2.85845291867e-1f);
  const float tail = __fmul_rn(__fmul_rn(p, t), e);
  constexpr float kDensityAtZero = 0.398942280401432678f;
  return {z < 0.0f ? tail : __fadd_rn(1.0f, -tail), __fmul_rn(e, kDensityAtZero)};
}

__device__ __forceinline__ float gelu_erf(float z, float& derivative) {
  const Normal n = normal(z);
  derivative = __fmaf_rn(z, n.density, n.below);
  return __fmul_rn(z, n.below);
}

__device__ __forceinline__ float relu(float z, float& derivative) {
  derivative = z > 0.0f ? 1.0f : 0.0f;
  return z < 0.0f ? 0.0f : z;
}

// z / (1 + e^-z).
template <Exponential kExponential>
__device__ __forceinline__ float silu(float z, float& derivative) {
  const Shares s = sigmoids<kExponential>(z);
  const float y = __fmul_rn(z, s.below);
  derivative = __fmaf_rn(y, s.above, s.below);
  return y;
}

// T: the type of z and of the result.
template <ops::Activation kActivation, class T>
__device__ __forceinline__ float activate(float z, float& derivative) {
  if constexpr (kActivation == ops::Activation::kGeluTanh) {
    return gelu_tanh<kExponentialFor<T>>(z, derivative);
  } else if constexpr (kActivation == ops::Activation::kGeluErf) {
    return gelu_erf(z, derivative);
  } else {
    static_assert(kActivation == ops::Activation::kRelu);
    return relu(z, derivative);
  }
}

}  // namespace lockstep::cuda
