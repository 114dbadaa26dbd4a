#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "lockstep/ops/reference/activation.h"
#include "lockstep/ops/reference/elements.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep::ops::reference {
namespace {

// A NaN is larger than all.
float larger(float a, float b) { return std::isnan(a) || a > b ? a : b; }

std::vector<double> numbers_of(const Tensor& bytes, Float8 format) {
  std::array<double, 256> by_code;
  for (std::size_t code = 0; code < by_code.size(); ++code) {
    by_code[code] = static_cast<double>(to_float(static_cast<std::uint8_t>(code), format));
  }
  std::vector<double> numbers;
  numbers.reserve(bytes.elements());
  for (const std::uint8_t code : bytes.as<const std::uint8_t>()) numbers.push_back(by_code[code]);
  return numbers;
}

void set_scale(std::span<float> scaling, float amax) {
  if (!std::isfinite(amax) || amax == 0) return;
  scaling[kScale] = scale_for(scaling[kLargest], amax);
  scaling[kInverse] = 1 / scaling[kScale];
}

}  // namespace

void run(const Quantize& op) {
  const Tensor& from = quantized_from(op);
  const std::int64_t rows = from.shape()[0];
  const std::int64_t columns = from.shape()[1];
  with_float_type(from.dtype(), [&]<class T>(T) {
    const Elements<T> x(op.x), z(op.z);
    const auto value = [&](std::int64_t row, std::int64_t column) {
      if (!z.given()) return x(row, column);
      if (!x.given()) return activate(op.activation, z(row, column));
      return x(row, column) * derivative(op.activation, z(row, column));
    };
    const auto scaling = op.scaling.as<float>();
    if (is_given(op.amax)) {
      float& amax = op.amax.as<float>()[0];
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
          amax = larger(static_cast<float>(std::fabs(value(row, column))), amax);
        }
      }
      if (op.calibrates && scaling[kScale] == 0) set_scale(scaling, amax);
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const auto scaled = static_cast<float>(value(row, column)) * scaling[kScale];
        const std::uint8_t byte = to_float8(scaled, op.format);
        if (is_given(op.y)) op.y.as<std::uint8_t>()[row * columns + column] = byte;
        if (is_given(op.transposed)) op.transposed.as<std::uint8_t>()[column * rows + row] = byte;
      }
    }
    with_float_type(op.dbias.dtype(), [&]<class G>(G) {
      const Elements<G> dbias(op.dbias);
      for (std::int64_t column = 0; dbias.given() && column < columns; ++column) {
        double sum = 0;
        for (std::int64_t row = 0; row < rows; ++row) sum += value(row, column);
        dbias.add(column, sum);
      }
    });
  });
}

void run(const ScaledMatmul& op) {
  const std::int64_t rows = op.y.shape()[0];
  const std::int64_t columns = op.y.shape()[1];
  const std::int64_t inner = op.a.shape()[1];
  const std::vector<double> a = numbers_of(op.a, op.a_format);
  const std::vector<double> b = numbers_of(op.b, op.b_format);
  const double inverse = static_cast<double>(op.a_scaling.as<const float>()[kInverse]) *
                         static_cast<double>(op.b_scaling.as<const float>()[kInverse]);
  with_float_type(op.y.dtype(), [&]<class T>(T) {
    const Elements<T> bias(op.bias), residual(op.residual), y(op.y);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const double* const of_a = a.data() + row * inner;
        const double* const of_b = b.data() + column * inner;
        double sum = 0;
        for (std::int64_t i = 0; i < inner; ++i) sum += of_a[i] * of_b[i];
        sum *= inverse;
        if (bias.given()) sum += bias[column];
        if (residual.given()) sum += residual(row, column);
        y.set(row, column, sum);
      }
    }
  });
}

void run(const UpdateScaling& op) {
  const auto all = op.scaling.as<float>();
  const auto amax = op.amax.as<float>();
  for (std::size_t i = 0; i < amax.size(); ++i) {
    const auto scaling = all.subspan(i * kScaling, kScaling);
    if (std::isfinite(amax[i])) {
      const auto history = scaling.subspan(kHistory);
      std::ranges::copy_backward(history.first(kAmaxHistory - 1), history.end());
      history[0] = amax[i];
      set_scale(scaling, *std::ranges::max_element(history));
    }
    amax[i] = 0;
  }
}

}  // namespace lockstep::ops::reference
