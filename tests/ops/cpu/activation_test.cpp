// Activations by the kernels of every instruction set that this CPU has.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "lockstep/ops/cpu/elementwise/kernels.h"
#include "lockstep/ops/reference/activation.h"

namespace lockstep::cpu {
namespace {

using ops::Activation;
using Kernel = ElementwiseKernels::Activate;

struct Case {
  Activation activation;
  std::function<Kernel(const ElementwiseKernels&)> kernel;
};

const Case kCases[] = {
    {Activation::kGeluTanh, [](const ElementwiseKernels& k) { return k.gelu_tanh.f32; }},
    {Activation::kGeluErf, [](const ElementwiseKernels& k) { return k.gelu_erf.f32; }},
    {Activation::kRelu, [](const ElementwiseKernels& k) { return k.relu.f32; }}};

struct Result {
  std::vector<float> y, derivative;
};

Result activate(Kernel kernel, const std::vector<float>& z) {
  Result result{std::vector<float>(z.size()), std::vector<float>(z.size())};
  kernel(z.data(), result.y.data(), result.derivative.data(), z.size());
  return result;
}

// Rounding errors grow with what is multiplied: z, and the slope of what the exponential takes.
TEST(Activation, IsExactOverTheWholeRange) {
  std::vector<float> z;
  for (int i = -120'000; i <= 120'000; ++i) z.push_back(static_cast<float>(i) * 1e-4f);
  for (const Isa isa : available_isas()) {
    for (const Case& one : kCases) {
      const Result result = activate(one.kernel(elementwise_kernels(isa)), z);
      double most = 0;
      for (std::size_t i = 0; i < z.size(); ++i) {
        const auto x = static_cast<double>(z[i]);
        const double y = ops::reference::activate(one.activation, x);
        const double slope = ops::reference::derivative(one.activation, x);
        const double scale = 1 + std::fabs(x);
        most = std::fmax(most, std::fabs(static_cast<double>(result.y[i]) - y) / scale);
        most = std::fmax(most, std::fabs(static_cast<double>(result.derivative[i]) - slope));
      }
      EXPECT_LE(most, 4 * 0x1p-23) << name(isa);
    }
  }
}

TEST(Activation, FarOutIsZeroOrTheIdentity) {
  for (const Isa isa : available_isas()) {
    for (const Case& one : kCases) {
      const std::vector<float> z = {1e30f, -1e30f, 3e38f, -3e38f, 0, 100, -100};
      const Result result = activate(one.kernel(elementwise_kernels(isa)), z);
      for (std::size_t i = 0; i < z.size(); ++i) {
        EXPECT_EQ(result.y[i], std::fmax(z[i], 0.0f)) << name(isa) << " at " << z[i];
        const float slope = z[i] > 0 ? 1 : z[i] < 0 ? 0 : result.derivative[i];
        EXPECT_EQ(result.derivative[i], slope) << name(isa) << " at " << z[i];
      }
    }
  }
}

TEST(Activation, NanStaysNan) {
  for (const Isa isa : available_isas()) {
    for (const Case& one : kCases) {
      const std::vector<float> z(5, std::numeric_limits<float>::quiet_NaN());
      for (const float y : activate(one.kernel(elementwise_kernels(isa)), z).y) {
        EXPECT_TRUE(std::isnan(y)) << name(isa);
      }
    }
  }
}

TEST(Activation, AnElementIsTheSameWhereverItStands) {
  std::vector<float> z;
  for (int i = 0; i < 77; ++i) z.push_back(std::sin(static_cast<float>(i)) * 4);
  for (const Isa isa : available_isas()) {
    for (const Case& one : kCases) {
      const Kernel kernel = one.kernel(elementwise_kernels(isa));
      const Result all = activate(kernel, z);
      for (std::size_t i = 0; i < z.size(); ++i) {
        const Result alone = activate(kernel, {z[i]});
        EXPECT_EQ(alone.y[0], all.y[i]) << name(isa);
        EXPECT_EQ(alone.derivative[0], all.derivative[i]) << name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu
