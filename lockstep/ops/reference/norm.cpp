#include <cmath>
#include <vector>

#include "lockstep/ops/reference/dropout.h"
#include "lockstep/ops/reference/elements.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep::ops::reference {
namespace {

struct Statistics {
  double mean;
  double rstd;  // 1 / sqrt(...)
};

// An RMS norm is a layer norm that takes 0 for the mean.
template <class T>
Statistics statistics(const Norm& op, const Elements<T>& sum, std::int64_t row) {
  const std::int64_t width = op.x.shape()[1];
  double mean = 0;
  if (op.kind == NormKind::kLayer) {
    for (std::int64_t i = 0; i < width; ++i) mean += sum(row, i);
    mean /= static_cast<double>(width);
  }
  double variance = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    variance += (sum(row, i) - mean) * (sum(row, i) - mean);
  }
  variance /= static_cast<double>(width);
  return {mean, 1 / std::sqrt(variance + static_cast<double>(op.epsilon))};
}

template <class T, class S>
void run_typed(const Norm& op) {
  const Elements<T> x(op.x), branch(op.branch), gain(op.gain), bias(op.bias), y(op.y);
  const Elements<T> sum(branch.given() ? op.sum : op.x);
  const Elements<S> means(op.mean), rstds(op.rstd);
  const std::int64_t width = op.x.shape()[1];
  const double one = op.above_one ? 1 : 0;
  for (std::int64_t row = 0; row < op.x.shape()[0]; ++row) {
    for (std::int64_t i = 0; branch.given() && i < width; ++i) {
      sum.set(row, i, x(row, i) + branch(row, i) * dropout_factor(op.dropout, row * width + i));
    }
    const Statistics of_row = statistics(op, sum, row);
    for (std::int64_t i = 0; i < width; ++i) {
      const double normed = (sum(row, i) - of_row.mean) * of_row.rstd;
      y.set(row, i, normed * (one + gain[i]) + (bias.given() ? bias[i] : 0));
    }
    if (means.given()) means.set(row, of_row.mean);
    rstds.set(row, of_row.rstd);
  }
}

// With n = (sum - mean) rstd and g = dy gain, the gradient of the sum is
// rstd (g - average(g) - n average(g n)); an RMS norm lacks the first average.
template <class T, class S, class G>
void run_typed(const NormBackward& op) {
  const Elements<T> dy(op.dy), sum(op.sum), gain(op.gain), dresidual(op.dresidual), dsum(op.dsum),
      dbranch(op.dbranch);
  const Elements<S> means(op.mean), rstds(op.rstd);
  const std::int64_t width = op.dy.shape()[1];
  const double one = op.above_one ? 1 : 0;
  std::vector<double> dgain(static_cast<std::size_t>(width)), dbias(dgain), normed(dgain);
  for (std::int64_t row = 0; row < op.dy.shape()[0]; ++row) {
    const double mean = means.given() ? means[row] : 0;
    double average = 0, average_normed = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      normed[at] = (sum(row, i) - mean) * rstds[row];
      dgain[at] += dy(row, i) * normed[at];
      dbias[at] += dy(row, i);
      average += dy(row, i) * (one + gain[i]);
      average_normed += dy(row, i) * (one + gain[i]) * normed[at];
    }
    average = op.kind == NormKind::kLayer ? average / static_cast<double>(width) : 0;
    average_normed /= static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i) {
      const double n = normed[static_cast<std::size_t>(i)];
      const double g = dy(row, i) * (one + gain[i]);
      const double through = rstds[row] * (g - average - n * average_normed);
      dsum.set(row, i, through + (dresidual.given() ? dresidual(row, i) : 0));
      if (dbranch.given()) {
        dbranch.set(row, i, dsum(row, i) * dropout_factor(op.dropout, row * width + i));
      }
    }
  }
  const Elements<G> gain_gradient(op.dgain);
  for (std::int64_t i = 0; i < width; ++i) {
    if (op.overwrite) gain_gradient.set(i, 0);
    gain_gradient.add(i, dgain[static_cast<std::size_t>(i)]);
  }
  with_float_type(op.dbias.dtype(), [&]<class B>(B) {
    const Elements<B> bias_gradient(op.dbias);
    for (std::int64_t i = 0; bias_gradient.given() && i < width; ++i) {
      if (op.overwrite) bias_gradient.set(i, 0);
      bias_gradient.add(i, dbias[static_cast<std::size_t>(i)]);
    }
  });
}

template <class T, class S>
void run_typed(const HeadNorm& op) {
  const Elements<T> x(op.x.rows), gain(op.gain), y(op.y.rows);
  const Elements<S> rstds(op.rstd);
  for (std::int64_t row = 0; row < op.x.rows.shape()[0]; ++row) {
    for (std::int64_t head = 0; head < op.heads; ++head) {
      const std::int64_t from = op.x.first + head * op.head_size;
      const std::int64_t to = op.y.first + head * op.head_size;
      double squares = 0;
      for (std::int64_t i = 0; i < op.head_size; ++i)
        squares += x(row, from + i) * x(row, from + i);
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(op.head_size) +
                                        static_cast<double>(op.epsilon));
      rstds.set(row, head, rstd);
      for (std::int64_t i = 0; i < op.head_size; ++i) {
        y.set(row, to + i, x(row, from + i) * rstd * gain[i]);
      }
    }
  }
}

// As the gradient of an RMS norm above, of every head.
template <class T, class S, class G>
void run_typed(const HeadNormBackward& op) {
  const Elements<T> x(op.x.rows), gain(op.gain), dy(op.dy.rows), dx(op.dx.rows);
  const Elements<S> rstds(op.rstd);
  const std::int64_t size = op.head_size;
  std::vector<double> dgain(static_cast<std::size_t>(size)), normed(dgain), g(dgain);
  for (std::int64_t row = 0; row < op.x.rows.shape()[0]; ++row) {
    for (std::int64_t head = 0; head < op.heads; ++head) {
      const std::int64_t first = head * size;
      const double rstd = rstds(row, head);
      double average = 0;
      for (std::int64_t i = 0; i < size; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double d = dy(row, op.dy.first + first + i);
        normed[at] = x(row, op.x.first + first + i) * rstd;
        g[at] = d * gain[i];
        dgain[at] += d * normed[at];
        average += g[at] * normed[at] / static_cast<double>(size);
      }
      for (std::int64_t i = 0; i < size; ++i) {
        const auto at = static_cast<std::size_t>(i);
        dx.set(row, op.dx.first + first + i, rstd * (g[at] - normed[at] * average));
      }
    }
  }
  const Elements<G> gradient(op.dgain);
  for (std::int64_t i = 0; i < size; ++i) gradient.add(i, dgain[static_cast<std::size_t>(i)]);
}

}  // namespace

void run(const HeadNorm& op) {
  with_float_type(op.x.rows.dtype(), [&]<class T>(T) {
    with_float_type(op.rstd.dtype(), [&]<class S>(S) { run_typed<T, S>(op); });
  });
}

void run(const HeadNormBackward& op) {
  with_float_type(op.x.rows.dtype(), [&]<class T>(T) {
    with_float_type(op.rstd.dtype(), [&]<class S>(S) {
      with_float_type(op.dgain.dtype(), [&]<class G>(G) { run_typed<T, S, G>(op); });
    });
  });
}

void run(const Norm& op) {
  with_float_type(op.x.dtype(), [&]<class T>(T) {
    with_float_type(op.rstd.dtype(), [&]<class S>(S) { run_typed<T, S>(op); });
  });
}

void run(const NormBackward& op) {
  with_float_type(op.dy.dtype(), [&]<class T>(T) {
    with_float_type(op.rstd.dtype(), [&]<class S>(S) {
      with_float_type(op.dgain.dtype(), [&]<class G>(G) { run_typed<T, S, G>(op); });
    });
  });
}

}  // namespace lockstep::ops::reference
