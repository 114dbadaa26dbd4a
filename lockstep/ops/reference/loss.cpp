#include <algorithm>
#include <cmath>

#include "lockstep/ops/check.h"
#include "lockstep/ops/reference/elements.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep::ops::reference {
namespace {

// The largest logit of a row, and the sum of e^(logit - largest).
struct RowSum {
  double largest = 0;
  double sum = 0;
  double log_sum() const { return largest + std::log(sum); }
};

template <class T>
RowSum sum_of_row(const Elements<T>& logits, std::int64_t row, std::int64_t classes) {
  RowSum result{.largest = logits(row, 0)};
  for (std::int64_t i = 1; i < classes; ++i) {
    result.largest = std::max(result.largest, logits(row, i));
  }
  for (std::int64_t i = 0; i < classes; ++i) {
    result.sum += std::exp(logits(row, i) - result.largest);
  }
  return result;
}

// That of all shards, from the statistics of each.
template <class S>
struct JoinedStatistics {
  double log_sum = 0;
  double of_target = 0;

  JoinedStatistics(const Elements<S>& statistics, std::int64_t shards, std::int64_t rows,
                   std::int64_t row) {
    const auto at = [&](std::int64_t shard, std::int64_t which) {
      return statistics(shard * rows + row, which);
    };
    double largest = at(0, 0);
    for (std::int64_t i = 1; i < shards; ++i) largest = std::max(largest, at(i, 0));
    double sum = 0;
    for (std::int64_t i = 0; i < shards; ++i) {
      sum += at(i, 1) * std::exp(at(i, 0) - largest);
      of_target += at(i, 2);
    }
    log_sum = largest + std::log(sum);
  }
};

template <class T, class S>
void run_typed(const LogitStatistics& op) {
  const Elements<T> logits(op.logits);
  const Elements<S> statistics(op.statistics);
  const auto targets = op.targets.as<const std::int32_t>();
  const std::int64_t classes = op.logits.shape()[1];
  for (std::int64_t row = 0; row < op.logits.shape()[0]; ++row) {
    const std::int32_t target = targets[static_cast<std::size_t>(row)];
    const RowSum of_row = sum_of_row(logits, row, classes);
    const std::int64_t own = target - op.first_class;
    const bool counts = target != kNoTarget;
    statistics.set(row, 0, counts ? of_row.largest : 0);
    statistics.set(row, 1, counts ? of_row.sum : 0);
    statistics.set(row, 2, counts && own >= 0 && own < classes ? logits(row, own) : 0);
  }
}

template <class T, class S>
void run_typed(const CrossEntropy& op) {
  const Elements<T> logits(op.logits);
  const Elements<S> losses(op.losses);
  const auto targets = op.targets.as<const std::int32_t>();
  const std::int64_t classes = op.logits.shape()[1];
  const auto factor = static_cast<double>(op.factor);
  const std::int64_t rows = op.logits.shape()[0];
  const bool is_shard = op.all_classes > 0;
  const Elements<S> statistics(
      is_shard ? op.statistics.reshaped({op.statistics.shape()[0] * rows, kLogitStatistics})
               : Tensor());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int32_t target = targets[static_cast<std::size_t>(row)];
    const bool counts = target != kNoTarget;
    double log_sum = 0;
    double of_target = 0;
    if (counts && is_shard) {
      const JoinedStatistics<S> joined(statistics, op.statistics.shape()[0], rows, row);
      log_sum = joined.log_sum;
      of_target = joined.of_target;
    } else if (counts) {
      log_sum = sum_of_row(logits, row, classes).log_sum();
      of_target = logits(row, target);
    }
    losses.set(row, log_sum - of_target);
    for (std::int64_t i = 0; op.gradient && i < classes; ++i) {
      const double p = counts ? std::exp(logits(row, i) - log_sum) : 0;
      const double capped = op.softcap > 0 ? logits(row, i) / op.softcap : 0;
      const bool is_target = op.first_class + i == target;
      logits.set(row, i, counts ? factor * (p - (is_target ? 1 : 0)) * (1 - capped * capped) : 0);
    }
  }
}

}  // namespace

void run(const LogitStatistics& op) {
  const std::int64_t classes = op.all_classes > 0 ? op.all_classes : op.logits.shape()[1];
  check_indices(op.targets, classes, "logit_statistics: targets", true);
  with_float_type(op.logits.dtype(), [&]<class T>(T) {
    with_float_type(op.statistics.dtype(), [&]<class S>(S) { run_typed<T, S>(op); });
  });
}

void run(const CrossEntropy& op) {
  const std::int64_t classes = op.all_classes > 0 ? op.all_classes : op.logits.shape()[1];
  check_indices(op.targets, classes, "cross_entropy: targets", true);
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
