#include "lockstep/ops/reference/activation.h"

#include <cmath>
#include <numbers>

namespace lockstep::ops::reference {
namespace {

constexpr double kCubic = 0.044715;
const double kRootTwoOverPi = std::sqrt(2 / std::numbers::pi);

double tanh_of(double z) { return std::tanh(kRootTwoOverPi * (z + kCubic * z * z * z)); }

double normal_below(double z) { return 0.5 * (1 + std::erf(z / std::numbers::sqrt2)); }
double normal_density(double z) {
  return std::exp(-0.5 * z * z) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

}  // namespace

double activate(Activation activation, double z) {
  switch (activation) {
    case Activation::kGeluTanh:
      return 0.5 * z * (1 + tanh_of(z));
    case Activation::kGeluErf:
      return z * normal_below(z);
    case Activation::kRelu:
      return z < 0 ? 0 : z;
  }
  __builtin_unreachable();
}

double derivative(Activation activation, double z) {
  switch (activation) {
    case Activation::kGeluTanh: {
      const double t = tanh_of(z);
      return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * kRootTwoOverPi * (1 + 3 * kCubic * z * z);
    }
    case Activation::kGeluErf:
      return normal_below(z) + z * normal_density(z);
    case Activation::kRelu:
      return z > 0 ? 1 : 0;
  }
  __builtin_unreachable();
}

}  // namespace lockstep::ops::reference
