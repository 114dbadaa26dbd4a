#include <cmath>

#include "lockstep/ops/reference/activation.h"
#include "lockstep/ops/reference/dropout.h"
#include "lockstep/ops/reference/elements.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep::ops::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double gated(Gate gate, double g) {
  return gate == Gate::kGeluTanh ? activate(Activation::kGeluTanh, g) : g * sigmoid(g);
}
double gate_slope(Gate gate, double g) {
  if (gate == Gate::kGeluTanh) return derivative(Activation::kGeluTanh, g);
  const double s = sigmoid(g);
  return s * (1 + g * (1 - s));
}

}  // namespace

void run(const Activate& op) {
  with_float_type(op.z.dtype(), [&]<class T>(T) {
    const Elements<T> z(op.z), y(op.y), kept(op.derivative);
    for (std::int64_t i = 0; i < count(op.z); ++i) {
      const double value = z[i];
      y.set(i, activate(op.activation, value));
      if (kept.given()) kept.set(i, derivative(op.activation, value));
    }
  });
}

void run(const Multiply& op) {
  with_float_type(op.a.dtype(), [&]<class T>(T) {
    const Elements<T> a(op.a), b(op.b), y(op.y);
    for (std::int64_t i = 0; i < count(op.a); ++i) y.set(i, a[i] * b[i]);
  });
}

void run(const Add& op) {
  with_float_type(op.a.dtype(), [&]<class T>(T) {
    const Elements<T> a(op.a), b(op.b), y(op.y);
    for (std::int64_t i = 0; i < count(op.a); ++i) y.set(i, a[i] + b[i]);
  });
}

void run(const SwiGlu& op) {
  with_float_type(op.y.dtype(), [&]<class T>(T) {
    const Elements<T> gate_up(op.gate_up), y(op.y);
    const std::int64_t width = op.y.shape()[1];
    for (std::int64_t row = 0; row < op.y.shape()[0]; ++row) {
      for (std::int64_t i = 0; i < width; ++i) {
        y.set(row, i, gated(op.gate, gate_up(row, i)) * gate_up(row, width + i));
      }
    }
  });
}

void run(const SwiGluBackward& op) {
  with_float_type(op.dy.dtype(), [&]<class T>(T) {
    const Elements<T> gate_up(op.gate_up), dy(op.dy), dgate_up(op.dgate_up);
    const std::int64_t width = op.dy.shape()[1];
    for (std::int64_t row = 0; row < op.dy.shape()[0]; ++row) {
      for (std::int64_t i = 0; i < width; ++i) {
        const double gate = gate_up(row, i);
        const double up = gate_up(row, width + i);
        dgate_up.set(row, i, dy(row, i) * up * gate_slope(op.gate, gate));
        dgate_up.set(row, width + i, dy(row, i) * gated(op.gate, gate));
      }
    }
  });
}

void run(const Drop& op) {
  with_float_type(op.x.dtype(), [&]<class T>(T) {
    const Elements<T> x(op.x), y(op.y);
    for (std::int64_t i = 0; i < count(op.x); ++i) y.set(i, x[i] * dropout_factor(op.dropout, i));
  });
}

void run(const Cast& op) {
  with_float_type(op.from.dtype(), [&]<class From>(From) {
    with_float_type(op.to.dtype(), [&]<class To>(To) {
      const Elements<From> from(op.from);
      const Elements<To> to(op.to);
      for (std::int64_t i = 0; i < count(op.from); ++i) to.set(i, from[i]);
    });
  });
}

void run(const Scale& op) {
  with_float_type(op.x.dtype(), [&]<class T>(T) {
    const Elements<T> x(op.x);
    for (std::int64_t i = 0; i < count(op.x); ++i) x.set(i, x[i] * op.factor);
  });
}

void run(const SoftCap& op) {
  with_float_type(op.x.dtype(), [&]<class T>(T) {
    const Elements<T> x(op.x);
    for (std::int64_t i = 0; i < count(op.x); ++i) x.set(i, op.cap * std::tanh(x[i] / op.cap));
  });
}

void run(const CopyColumns& op) {
  with_float_type(op.from.rows.dtype(), [&]<class From>(From) {
    with_float_type(op.to.rows.dtype(), [&]<class To>(To) {
      const Elements<From> from(op.from.rows);
      const Elements<To> to(op.to.rows);
      for (std::int64_t row = 0; row < op.from.rows.shape()[0]; ++row) {
        for (std::int64_t i = 0; i < op.columns; ++i) {
          const double x = from(row, op.from.first + i);
          const std::int64_t column = op.to.first + i;
          op.accumulate ? to.add(row, column, x) : to.set(row, column, x);
        }
      }
    });
  });
}

}  // namespace lockstep::ops::reference
