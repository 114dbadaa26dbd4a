#include <cmath>

#include "lockstep/ops/reference/elements.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep::ops::reference {

void run(const Rotary& op) {
  with_float_type(op.x.rows.dtype(), [&]<class T>(T) {
    const Elements<T> x(op.x.rows);
    const double amplitude = op.amplitude;
    const std::int64_t half = op.head_size / 2;
    const std::int64_t stride = op.stride > 0 ? op.stride : op.head_size;
    for (std::int64_t row = 0; row < op.x.rows.shape()[0]; ++row) {
      const auto position = static_cast<double>(op.first_position + row % op.sequence);
      for (std::int64_t head = 0; head < op.heads; ++head) {
        for (std::int64_t i = 0; i < half; ++i) {
          const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(op.head_size);
          const double frequency = std::pow(static_cast<double>(op.theta), exponent);
          const double slowing =
              is_given(op.slowing) ? op.slowing.as<const float>()[static_cast<std::size_t>(i)] : 1;
          const double angle = position * scaled_frequency(frequency, op.scaling) / slowing;
          const double c = amplitude * std::cos(angle);
          const double s = amplitude * (op.backward ? -std::sin(angle) : std::sin(angle));
          const std::int64_t first = op.x.first + head * stride + i;
          const double a = x(row, first);
          const double b = x(row, first + half);
          x.set(row, first, a * c - b * s);
          x.set(row, first + half, a * s + b * c);
        }
      }
    }
  });
}

}  // namespace lockstep::ops::reference
