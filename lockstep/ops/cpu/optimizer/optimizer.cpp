#include "lockstep/ops/cpu/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/ops/check.h"
#include "lockstep/ops/cpu/optimizer/kernels.h"
#include "lockstep/ops/cpu/team/split.h"

namespace lockstep::cpu {
namespace {

// Where a second moment is zero, so is the first: it has to be divided by something.
constexpr double kLeastEpsilon = 1e-30;

AdamNumbers numbers(const ops::Adam& call) {
  const auto step = static_cast<double>(call.step);
  const double correction1 = 1 - std::pow(call.beta1, step);
  const double correction2 = 1 - std::pow(call.beta2, step);
  return {.gradient_scale = static_cast<float>(call.gradient_scale),
          .coupled_decay = static_cast<float>(call.decoupled ? 0 : call.decay),
          .beta1 = static_cast<float>(call.beta1),
          .not_beta1 = static_cast<float>(1 - call.beta1),
          .beta2 = static_cast<float>(call.beta2),
          .not_beta2 = static_cast<float>(1 - call.beta2),
          .rate = static_cast<float>(call.rate / correction1),
          .root = static_cast<float>(1 / std::sqrt(correction2)),
          .epsilon = static_cast<float>(std::max(call.epsilon, kLeastEpsilon)),
          .decay = static_cast<float>(call.decoupled ? call.rate * call.decay : 0)};
}

// The table's index where there is no parameter is f32.
DType parameter_type(const Tensor& parameter) {
  return ops::is_given(parameter) ? parameter.dtype() : DType::kF32;
}
std::byte* at(const Tensor& tensor, std::size_t element) {
  return ops::is_given(tensor) ? tensor.data() + element * size_of(tensor.dtype()) : nullptr;
}
float* float_at(const Tensor& tensor, std::size_t element) {
  return reinterpret_cast<float*>(at(tensor, element));
}

}  // namespace

void run(const Cpu& cpu, const ops::Adam& call) {
  ops::check(call);
  if (std::isnan(static_cast<double>(call.gradient_scale))) return;
  const AdamNumbers step = numbers(call);
  const auto kernel =
      optimizer_kernels(cpu.isa).adam[call.gradient.dtype()][parameter_type(call.parameter)];
  split(cpu.team, call.master.elements(), kElementGrain, 7 * call.master.bytes(), [&](Range range) {
    const std::size_t i = range.begin;
    kernel(step, at(call.gradient, i), float_at(call.master, i), float_at(call.first_moment, i),
           float_at(call.second_moment, i), at(call.parameter, i), range.size());
  });
}

void run(const Cpu& cpu, const ops::Sgd& call) {
  ops::check(call);
  if (std::isnan(static_cast<double>(call.gradient_scale))) return;
  const SgdNumbers step{.gradient_scale = static_cast<float>(call.gradient_scale),
                        .decay = static_cast<float>(call.decay),
                        .momentum = static_cast<float>(call.momentum),
                        .rate = static_cast<float>(call.rate)};
  const auto kernel =
      optimizer_kernels(cpu.isa).sgd[call.gradient.dtype()][parameter_type(call.parameter)];
  split(cpu.team, call.master.elements(), kElementGrain, 5 * call.master.bytes(), [&](Range range) {
    const std::size_t i = range.begin;
    kernel(step, at(call.gradient, i), float_at(call.master, i), float_at(call.velocity, i),
           at(call.parameter, i), range.size());
  });
}

// Sums runs, and spans of runs, in their order. The spans depend only on the number of elements, so
// the sum does not depend on the number of threads.
void run(const Cpu& cpu, const ops::SumOfSquares& call) {
  ops::check(call);
  constexpr std::size_t kRun = ops::SumOfSquares::kRun;
  const std::size_t count = call.x.elements();
  const std::size_t runs = ops::run_count(count);
  const OptimizerKernels& kernels = optimizer_kernels(cpu.isa);
  const auto kernel = call.x.dtype() == DType::kF64 ? kernels.sum_of_squares_f64
                                                    : kernels.sum_of_squares[call.x.dtype()];
  const auto run = [&](std::size_t i) {
    return kernel(at(call.x, i * kRun), std::min(kRun, count - i * kRun));
  };
  const std::span<double> result = call.result.as<double>();
  if (result.size() == runs) {
    split(cpu.team, runs, ops::kSpanRuns, call.x.bytes(), [&](Range range) {
      for (std::size_t i = range.begin; i < range.end; ++i) result[i] = run(i);
    });
    return;
  }
  constexpr std::size_t kMostSpans = ops::SumOfSquares::kMost / kRun / ops::kSpanRuns;
  const std::size_t span = std::max(ops::kSpanRuns, (runs + kMostSpans - 1) / kMostSpans);
  const std::size_t spans = (runs + span - 1) / span;
  std::array<double, kMostSpans> sums;
  split(cpu.team, spans, 1, call.x.bytes(), [&](Range range) {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      sums[i] = 0;
      for (std::size_t k = i * span; k < std::min((i + 1) * span, runs); ++k) sums[i] += run(k);
    }
  });
  double sum = 0;
  for (std::size_t i = 0; i < spans; ++i) sum += sums[i];
  result[0] = sum;
}

}  // namespace lockstep::cpu
