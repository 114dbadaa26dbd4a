#include "lockstep/ops/reference/activation.h"
#include "lockstep/ops/reference/elements.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep::ops::reference {
namespace {

// x[row] . weight[column] + bias[column]
template <class T>
double product(const Elements<T>& x, const Elements<T>& weight, const Elements<T>& bias,
               std::int64_t in, std::int64_t row, std::int64_t column) {
  double sum = bias.given() ? bias[column] : 0;
  for (std::int64_t i = 0; i < in; ++i) sum += x(row, i) * weight(column, i);
  return sum;
}

}  // namespace

void run(const Linear& op) {
  with_float_type(op.x.dtype(), [&]<class T>(T) {
    const Elements<T> x(op.x), weight(op.weight), bias(op.bias), residual(op.residual), y(op.y);
    const std::int64_t in = op.x.shape()[1];
    for (std::int64_t row = 0; row < op.y.shape()[0]; ++row) {
      for (std::int64_t column = 0; column < op.y.shape()[1]; ++column) {
        double sum = product(x, weight, bias, in, row, column);
        if (residual.given()) sum += residual(row, column);
        y.set(row, column, sum);
      }
    }
  });
}

void run(const LinearActivation& op) {
  with_float_type(op.x.dtype(), [&]<class T>(T) {
    const Elements<T> x(op.x), weight(op.weight), bias(op.bias), y(op.y), kept(op.derivative);
    const Elements<T> sums(op.z);
    const std::int64_t in = op.x.shape()[1];
    for (std::int64_t row = 0; row < op.y.shape()[0]; ++row) {
      for (std::int64_t column = 0; column < op.y.shape()[1]; ++column) {
        const double z = to_double(rounded<T>(product(x, weight, bias, in, row, column)));
        y.set(row, column, activate(op.activation, z));
        if (kept.given()) kept.set(row, column, derivative(op.activation, z));
        if (sums.given()) sums.set(row, column, z);
      }
    }
  });
}

void run(const LinearBackwardInput& op) {
  with_float_type(op.dy.dtype(), [&]<class T>(T) {
    const Elements<T> dy(op.dy), weight(op.weight), factor(op.factor), dx(op.dx), z(op.z);
    const std::int64_t out = op.dy.shape()[1];
    for (std::int64_t row = 0; row < op.dx.shape()[0]; ++row) {
      for (std::int64_t column = 0; column < op.dx.shape()[1]; ++column) {
        double sum = op.accumulate ? dx(row, column) : 0;
        for (std::int64_t o = 0; o < out; ++o) sum += dy(row, o) * weight(o, column);
        if (factor.given()) sum *= factor(row, column);
        if (z.given()) sum *= derivative(op.activation, z(row, column));
        dx.set(row, column, sum);
      }
    }
  });
}

void run(const LinearBackwardWeight& op) {
  const std::int64_t rows = op.dy.shape()[0];
  const std::int64_t first = op.first_output.value_or(0);
  const std::int64_t out = op.dweight.shape()[0];
  const std::int64_t in = op.x.shape()[1];
  with_float_type(op.dy.dtype(), [&]<class T>(T) {
    const Elements<T> dy(op.dy), x(op.x);
    with_float_type(op.dweight.dtype(), [&]<class G>(G) {
      const Elements<G> dweight(op.dweight);
      for (std::int64_t o = 0; o < out; ++o) {
        for (std::int64_t i = 0; i < in; ++i) {
          double sum = 0;
          for (std::int64_t row = 0; row < rows; ++row) sum += dy(row, first + o) * x(row, i);
          if (op.overwrite) dweight.set(o, i, 0);
          dweight.add(o, i, sum);
        }
      }
    });
    with_float_type(op.dbias.dtype(), [&]<class G>(G) {
      const Elements<G> dbias(op.dbias);
      for (std::int64_t o = 0; dbias.given() && o < out; ++o) {
        double sum = 0;
        for (std::int64_t row = 0; row < rows; ++row) sum += dy(row, first + o);
        if (op.overwrite) dbias.set(o, 0);
        dbias.add(o, sum);
      }
    });
  });
}

}  // namespace lockstep::ops::reference
