// The kernels of kernels.h for one instruction set.
#pragma once

#include "lockstep/base/simd/soft_cap.inl"
#include "lockstep/base/simd/sums.inl"
#include "lockstep/ops/cpu/loss/kernels.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

template <class T>
float most(const T* row, std::size_t count) {
  Floats parts[4] = {};
  for (Floats& part : parts) part = splat(-__builtin_inff());
  for_vectors_in_turn(count, [&](std::size_t i, auto part, int turn) {
    if (part == kLanes) {
      parts[turn] = max(parts[turn], load(row + i));
    } else {
      for (std::size_t k = 0; k < part; ++k) {
        parts[turn] = max(parts[turn], splat(load_part(row + i + k, 1)[0]));
      }
    }
  });
  return max_of_lanes(max(max(parts[0], parts[1]), max(parts[2], parts[3])));
}

// Sums of this many terms run in float; the sum of these sums runs in double.
constexpr std::size_t kTerms = 1024;

// The sum of e^(x - largest) over the row; where `keeps`, these take the place of x.
template <bool keeps, class T>
double sum_of_exponentials(T* row, std::size_t count, float largest) {
  double total = 0;
  for (std::size_t first = 0; first < count; first += kTerms) {
    const std::size_t here = count - first < kTerms ? count - first : kTerms;
    T* x = row + first;
    total += static_cast<double>(sum_over(here, [&](std::size_t i, auto part) {
      const Floats e = first_lanes(exp_not_above_zero(load_some(x + i, part) - largest), part);
      if constexpr (keeps) store_some(x + i, e, part);
      return e;
    }));
  }
  return total;
}

// x = scale e^(x - largest), times the slope of the soft cap (0: none).
template <class T>
void write_gradient(T* row, std::size_t classes, float largest, Floats scale, float softcap) {
  if (softcap == 0) {
    return for_vectors(classes, [&](std::size_t i, auto part) {
      store_some(row + i, exp_not_above_zero(load_some(row + i, part) - largest) * scale, part);
    });
  }
  for_vectors(classes, [&](std::size_t i, auto part) {
    const Floats x = load_some(row + i, part);
    const Floats p = exp_not_above_zero(x - largest) * scale;
    store_some(row + i, p * soft_cap_slope(x, softcap), part);
  });
}

// That of the target's logit x.
inline Floats gradient_of_target(double x, float largest, double sum, float factor, float softcap) {
  const double p = __builtin_exp(x - static_cast<double>(largest)) / sum;
  const double capped = softcap > 0 ? x / static_cast<double>(softcap) : 0;
  return splat(static_cast<float>(static_cast<double>(factor) * (p - 1) * (1 - capped * capped)));
}

template <class T>
float cross_entropy(void* logits, std::size_t classes, std::size_t target, bool gradient,
                    float factor, float softcap) {
  T* row = static_cast<T*>(logits);
  const float largest = most(row, classes);
  const auto of_target = static_cast<double>(load_part(row + target, 1)[0]);
  // Floats keep the exponentials of the sum as they are; narrower types would round them, and the
  // slope of a cap needs the logits, so they are computed again.
  constexpr bool kCanKeep = sizeof(T) == sizeof(float);
  const bool keeps = kCanKeep && gradient && softcap == 0;
  const double sum = keeps ? sum_of_exponentials<kCanKeep>(row, classes, largest)
                           : sum_of_exponentials<false>(row, classes, largest);
  if (gradient) {
    const Floats scale = splat(static_cast<float>(static_cast<double>(factor) / sum));
    if (keeps) {
      for_vectors(classes, [&](std::size_t i, auto part) {
        store_some(row + i, load_some(row + i, part) * scale, part);
      });
    } else {
      write_gradient(row, classes, largest, scale, softcap);
    }
    store_part(row + target, gradient_of_target(of_target, largest, sum, factor, softcap), 1);
  }
  return static_cast<float>(__builtin_log(sum) - (of_target - static_cast<double>(largest)));
}

template <class T>
LossKernels::Statistics logit_statistics(void* logits, std::size_t classes) {
  T* row = static_cast<T*>(logits);
  const float largest = most(row, classes);
  return {largest, static_cast<float>(sum_of_exponentials<false>(row, classes, largest))};
}

template <class T>
void shard_gradient(void* logits, std::size_t classes, std::size_t target, float largest,
                    double sum, float factor, float softcap) {
  T* row = static_cast<T*>(logits);
  const bool has_target = target < classes;
  const double of_target = has_target ? static_cast<double>(load_part(row + target, 1)[0]) : 0;
  const Floats scale = splat(static_cast<float>(static_cast<double>(factor) / sum));
  write_gradient(row, classes, largest, scale, softcap);
  if (!has_target) return;
  store_part(row + target, gradient_of_target(of_target, largest, sum, factor, softcap), 1);
}

template <class T>
float squared_error(const void* x, const void* target, void* dx, std::size_t width, float factor) {
  const T* a = static_cast<const T*>(x);
  const T* b = static_cast<const T*>(target);
  T* gradient = static_cast<T*>(dx);
  double total = 0;
  for (std::size_t first = 0; first < width; first += kTerms) {
    const std::size_t here = width - first < kTerms ? width - first : kTerms;
    total += static_cast<double>(sum_over(here, [&](std::size_t k, auto part) {
      const std::size_t i = first + k;
      const Floats difference = load_some(a + i, part) - load_some(b + i, part);
      if (gradient != nullptr) store_some(gradient + i, difference * (2 * factor), part);
      return difference * difference;
    }));
  }
  return static_cast<float>(total);
}

}  // namespace

const LossKernels loss_kernels{
    .cross_entropy = {cross_entropy<float>, cross_entropy<BFloat16>, cross_entropy<Half>},
    .logit_statistics = {logit_statistics<float>, logit_statistics<BFloat16>,
                         logit_statistics<Half>},
    .shard_gradient = {shard_gradient<float>, shard_gradient<BFloat16>, shard_gradient<Half>},
    .squared_error = {squared_error<float>, squared_error<BFloat16>, squared_error<Half>},
};

}  // namespace lockstep::cpu::LOCKSTEP_ISA
