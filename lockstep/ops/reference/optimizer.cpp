#include <cmath>

#include "lockstep/ops/reference/elements.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep::ops::reference {
namespace {

// parameter = master, rounded; nothing where there is no parameter of its own.
void round_parameter(const Tensor& parameter, const Tensor& master) {
  if (is_given(parameter)) run(Cast{.from = master, .to = parameter});
}

}  // namespace

void run(const Adam& op) {
  if (std::isnan(static_cast<double>(op.gradient_scale))) return;
  with_float_type(op.gradient.dtype(), [&]<class G>(G) {
    const Elements<G> gradient(op.gradient);
    const Elements<float> master(op.master), first_moment(op.first_moment),
        second_moment(op.second_moment);
    const double correction1 = 1 - std::pow(op.beta1, static_cast<double>(op.step));
    const double correction2 = 1 - std::pow(op.beta2, static_cast<double>(op.step));
    for (std::int64_t i = 0; i < count(op.master); ++i) {
      const double before = master[i];
      const double g = gradient[i] * op.gradient_scale + (op.decoupled ? 0 : op.decay * before);
      const double m = op.beta1 * first_moment[i] + (1 - op.beta1) * g;
      const double v = op.beta2 * second_moment[i] + (1 - op.beta2) * g * g;
      const double direction = m / correction1 / (std::sqrt(v / correction2) + op.epsilon);
      first_moment.set(i, m);
      second_moment.set(i, v);
      master.set(i, before - op.rate * (direction + (op.decoupled ? op.decay * before : 0)));
    }
  });
  round_parameter(op.parameter, op.master);
}

void run(const Sgd& op) {
  if (std::isnan(static_cast<double>(op.gradient_scale))) return;
  with_float_type(op.gradient.dtype(), [&]<class G>(G) {
    const Elements<G> gradient(op.gradient);
    const Elements<float> master(op.master), velocity(op.velocity);
    for (std::int64_t i = 0; i < count(op.master); ++i) {
      double g = gradient[i] * op.gradient_scale + op.decay * master[i];
      if (velocity.given()) {
        g += op.momentum * velocity[i];
        velocity.set(i, g);
      }
      master.set(i, master[i] - op.rate * g);
    }
  });
  round_parameter(op.parameter, op.master);
}

void run(const SumOfSquares& op) {
  with_float_type(op.x.dtype(), [&]<class T>(T) {
    const Elements<T> x(op.x);
    std::vector<double> runs(run_count(op.x.elements()));
    for (std::int64_t i = 0; i < count(op.x); ++i) {
      runs[static_cast<std::size_t>(i) / SumOfSquares::kRun] += x[i] * x[i];
    }
    const std::span<double> result = op.result.as<double>();
    if (result.size() == runs.size()) {
      std::ranges::copy(runs, result.begin());
    } else {
      result[0] = sum_of_runs(runs);
    }
  });
}

}  // namespace lockstep::ops::reference
