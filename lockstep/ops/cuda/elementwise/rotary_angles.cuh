// The angles of rotary positions, for kernels.
//
// An angle is position times frequency in double, modulo whole turns, so it is exact for any
// position. Sine and cosine are computed from the angle rounded to f32. A first-order term corrects
// the rounding error.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/gpu_limits.h"

namespace lockstep::cuda {

// What the frequencies of pairs follow from. The slowing of every pair is among a kernel's
// arguments, so captured steps have theirs.
struct RotaryTurns {
  float theta;
  ops::RotaryScaling scaling;
  float amplitude;
  bool is_slowed;
  float slowing[ops::kMostSlowedPairs];
};

template <class Call>
RotaryTurns turns_of(const Call& call) {
  const std::size_t pairs = call.slowing.elements();  // no more, by the checks of CudaOps
  RotaryTurns turns{.theta = call.theta,
                    .scaling = call.scaling,
                    .amplitude = call.amplitude,
                    .is_slowed = pairs > 0,
                    .slowing = {}};
  if (pairs > 0) std::copy_n(data_of<const float>(call.slowing), pairs, turns.slowing);
  return turns;
}

// The frequency of pair i of a head of `pairs` pairs.
__device__ __forceinline__ double rotary_frequency(const RotaryTurns& turns, int i, int pairs) {
  const double exponent = -static_cast<double>(i) / static_cast<double>(pairs);
  const double frequency =
      ops::scaled_frequency(pow(static_cast<double>(turns.theta), exponent), turns.scaling);
  return turns.is_slowed ? frequency / turns.slowing[i] : frequency;
}

__device__ __forceinline__ float2 cosine_and_sine(double angle) {
  constexpr double kTurn = 6.283185307179586476925;
  constexpr double kTurnRest = 2.449293598294706414e-16;  // 2 pi minus kTurn
  const double turns = rint(angle * (1 / kTurn));
  const double rest = fma(-turns, kTurnRest, fma(-turns, kTurn, angle));
  const auto rounded_angle = static_cast<float>(rest);
  const auto missing = static_cast<float>(rest - static_cast<double>(rounded_angle));
  float sine, cosine;
  sincosf(rounded_angle, &sine, &cosine);
  return make_float2(fmaf(-sine, missing, cosine), fmaf(cosine, missing, sine));
}

}  // namespace lockstep::cuda
