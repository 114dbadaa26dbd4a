// The kernels of kernels.h for one instruction set.
//
// What becomes of an element must not depend on where in a call it stands (an optimizer's state may
// be cut into shards anywhere), so the order of every product and sum is written out.
#pragma once

#include "lockstep/base/simd/doubles.inl"
#include "lockstep/base/simd/sums.inl"
#include "lockstep/ops/cpu/optimizer/kernels.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

// A parameter of type f32 is none: the master is the parameter.
template <class Parameter>
void store_parameter(void* parameter, std::size_t i, Floats master, std::size_t part) {
  if constexpr (sizeof(Parameter) < sizeof(float)) {
    store_some(static_cast<Parameter*>(parameter) + i, master, part);
  }
}

struct AdamVectors {
  Floats gradient, master, first_moment, second_moment;
};

template <bool kCoupled>
inline void take_step(const AdamNumbers& n, AdamVectors& x) {
  Floats g = x.gradient * n.gradient_scale;
  if constexpr (kCoupled) g = fused(x.master, splat(n.coupled_decay), g);
  x.first_moment = fused(x.first_moment, splat(n.beta1), g * n.not_beta1);
  x.second_moment = fused(x.second_moment, splat(n.beta2), g * g * n.not_beta2);
  const Floats size = fused(square_root(x.second_moment), splat(n.root), splat(n.epsilon));
  x.master -= fused(x.master, splat(n.decay), x.first_moment * n.rate / size);
}

template <class Gradient, class Parameter, bool kCoupled>
void adam_steps(const AdamNumbers& numbers, const void* gradient, float* master,
                float* first_moment, float* second_moment, void* parameter, std::size_t count) {
  const AdamNumbers n = numbers;
  for_vectors_by_two(
      count,
      [&](std::size_t i, auto part) {
        return AdamVectors{load_some(static_cast<const Gradient*>(gradient) + i, part),
                           load_some(master + i, part), load_some(first_moment + i, part),
                           load_some(second_moment + i, part)};
      },
      [&](AdamVectors& x) { take_step<kCoupled>(n, x); },
      [&](std::size_t i, auto part, const AdamVectors& x) {
        store_some(first_moment + i, x.first_moment, part);
        store_some(second_moment + i, x.second_moment, part);
        store_some(master + i, x.master, part);
        store_parameter<Parameter>(parameter, i, x.master, part);
      });
}

template <class Gradient, class Parameter>
void adam(const AdamNumbers& n, const void* gradient, float* master, float* first_moment,
          float* second_moment, void* parameter, std::size_t count) {
  const auto steps = n.coupled_decay == 0 ? adam_steps<Gradient, Parameter, false>
                                          : adam_steps<Gradient, Parameter, true>;
  steps(n, gradient, master, first_moment, second_moment, parameter, count);
}

template <class Gradient, class Parameter>
void sgd(const SgdNumbers& n, const void* gradient, float* master, float* velocity, void* parameter,
         std::size_t count) {
  const auto* gradients = static_cast<const Gradient*>(gradient);
  for_vectors(count, [&](std::size_t i, auto part) {
    const Floats before = load_some(master + i, part);
    Floats g = fused(before, splat(n.decay), load_some(gradients + i, part) * n.gradient_scale);
    if (velocity != nullptr) {
      g = fused(load_some(velocity + i, part), splat(n.momentum), g);
      store_some(velocity + i, g, part);
    }
    const Floats after = fused(g, splat(-n.rate), before);
    store_some(master + i, after, part);
    store_parameter<Parameter>(parameter, i, after, part);
  });
}

// In double: the square of a float may be larger or smaller than any float.
template <class T>
double sum_of_squares(const void* x, std::size_t count) {
  const T* from = static_cast<const T*>(x);
  Doubles low[4] = {}, high[4] = {};
  for_vectors_in_turn(count, [&](std::size_t i, auto part, int turn) {
    const Floats value = load_some(from + i, part);
    const Doubles a = low_half(value), b = high_half(value);
    low[turn] += a * a;
    high[turn] += b * b;
  });
  return sum_of_lanes((low[0] + low[1]) + (low[2] + low[3]) +
                      ((high[0] + high[1]) + (high[2] + high[3])));
}

double sum_of_squares_f64(const void* x, std::size_t count) {
  const auto* from = static_cast<const double*>(x);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += from[i] * from[i];
  return sum;
}

template <class Gradient>
constexpr PerType<OptimizerKernels::Adam> kAdam{adam<Gradient, float>, adam<Gradient, BFloat16>,
                                                adam<Gradient, Half>};
template <class Gradient>
constexpr PerType<OptimizerKernels::Sgd> kSgd{sgd<Gradient, float>, sgd<Gradient, BFloat16>,
                                              sgd<Gradient, Half>};

}  // namespace

const OptimizerKernels optimizer_kernels{
    .adam = {kAdam<float>, kAdam<BFloat16>, kAdam<Half>},
    .sgd = {kSgd<float>, kSgd<BFloat16>, kSgd<Half>},
    .sum_of_squares = {sum_of_squares<float>, sum_of_squares<BFloat16>, sum_of_squares<Half>},
    .sum_of_squares_f64 = sum_of_squares_f64,
};

}  // namespace lockstep::cpu::LOCKSTEP_ISA
