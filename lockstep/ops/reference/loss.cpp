#include <algorithm>
#include <cmath>

#include "lockstep/ops/check.h"
#include "lockstep/ops/reference/elements.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep::ops::reference {
namespace {

template <class T>
double log_sum_exp(const Elements<T>& logits, std::int64_t row, std::int64_t classes) {
  double largest = logits(row, 0);
  for (std::int64_t i = 1; i < classes; ++i) largest = std::max(largest, logits(row, i));
  double sum = 0;
  for (std::int64_t i = 0; i < classes; ++i) sum += std::exp(logits(row, i) - largest);
  return largest + std::log(sum);
}

template <class T, class S>
void run_typed(const CrossEntropy& op) {
  const Elements<T> logits(op.logits);
  const Elements<S> losses(op.losses);
  const auto targets = op.targets.as<const std::int32_t>();
  const std::int64_t classes = op.logits.shape()[1];
  const auto factor = static_cast<double>(op.factor);
  for (std::int64_t row = 0; row < op.logits.shape()[0]; ++row) {
    const std::int32_t target = targets[static_cast<std::size_t>(row)];
    const bool counts = target != kNoTarget;
    const double log_sum = counts ? log_sum_exp(logits, row, classes) : 0;
    losses.set(row, counts ? log_sum - logits(row, target) : 0);
    for (std::int64_t i = 0; op.gradient && i < classes; ++i) {
      const double p = counts ? std::exp(logits(row, i) - log_sum) : 0;
      logits.set(row, i, counts ? factor * (p - (i == target ? 1 : 0)) : 0);
    }
  }
}

}  // namespace

void run(const CrossEntropy& op) {
  check_indices(op.targets, op.logits.shape()[1], "cross_entropy: targets", true);
  with_float_type(op.logits.dtype(), [&]<class T>(T) {
    with_float_type(op.losses.dtype(), [&]<class S>(S) { run_typed<T, S>(op); });
  });
}

void run(const SquaredError& op) {
  with_float_type(op.x.dtype(), [&]<class T>(T) {
    with_float_type(op.losses.dtype(), [&]<class S>(S) {
      const Elements<T> x(op.x), target(op.target), dx(op.dx);
      const Elements<S> losses(op.losses);
      for (std::int64_t row = 0; row < op.x.shape()[0]; ++row) {
        double sum = 0;
        for (std::int64_t i = 0; i < op.x.shape()[1]; ++i) {
          const double difference = x(row, i) - target(row, i);
          sum += difference * difference;
          if (dx.given()) dx.set(row, i, 2 * static_cast<double>(op.factor) * difference);
        }
        losses.set(row, sum);
      }
    });
  });
}

}  // namespace lockstep::ops::reference
