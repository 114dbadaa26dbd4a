// The backward of every operation against finite differences of its forward, in f64, where the
// differences are good to some nine places.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/bench/ops/fields.h"
#include "tests/ops/expectations.h"

namespace lockstep::ops_test {
namespace {

using bench::Gradient;
using Values = std::vector<double>;

constexpr double kStep = 1e-5;
constexpr std::size_t kElementByElement = 40;  // tensors so small are checked everywhere
constexpr int kDirections = 4;                 // larger ones along some directions
constexpr double kTolerance = 1e-7;            // of the size of the gradient

Values normals(std::size_t count, std::uint64_t seed) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = normal_at(seed, 0, i);
  return values;
}

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

class Differences {
 public:
  explicit Differences(const OpCase& one)
      : case_(one), gradient_(*one.gradient), memory_(one), ops_(make_reference_ops()) {
    for (const std::string& output : gradient_.outputs) {
      const std::size_t count = memory_.field(output).tensor().elements();
      weights_[output] =
          gradient_.weight ? Values(count, *gradient_.weight) : normals(count, 1000 + count);
    }
  }

  // The loss with `input` moved along a direction.
  double loss(const std::string& input, std::span<const double> direction, double by) {
    memory_.restore();
    const auto elements = memory_.field(input).tensor().as<double>();
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] += by * direction[i];
    memory_.run(*ops_);
    double sum = 0;
    for (const auto& [output, weights] : weights_) {
      sum += dot(memory_.field(output).tensor().as<const double>(), weights);
    }
    return sum;
  }

  double slope(const std::string& input, std::span<const double> direction) {
    return (loss(input, direction, kStep) - loss(input, direction, -kStep)) / (2 * kStep);
  }

  // The gradients of all inputs, by the backward operations.
  std::map<std::string, Values> gradients() {
    memory_.restore();
    memory_.run(*ops_);
    Tensors tensors = memory_.tensors();
    std::map<std::string, Values> values;
    const auto put = [&](const std::string& field, Values initial) {
      Values& place = values[field] = std::move(initial);
      tensors.put("d" + field, tensor_of(std::span(place), case_.find(field)->shape));
    };
    for (const std::string& input : gradient_.inputs) {
      put(input, Values(memory_.field(input).tensor().elements()));
    }
    for (const auto& [output, weights] : weights_) put(output, weights);
    gradient_.backward(*ops_, tensors);
    return values;
  }

 private:
  const OpCase& case_;
  const Gradient& gradient_;
  CaseMemory memory_;
  std::unique_ptr<Ops> ops_;
  std::map<std::string, Values> weights_;
};

// A direction has length 1.
void expect_slope(Differences& differences, const std::string& input, const Values& gradient,
                  const Values& direction) {
  const double expected = differences.slope(input, direction);
  const double size = std::sqrt(1 + dot(gradient, gradient));
  EXPECT_NEAR(dot(gradient, direction), expected, kTolerance * size);
}

void expect_gradient(const OpCase& one) {
  Differences differences(one);
  const auto gradients = differences.gradients();
  for (const std::string& input : one.gradient->inputs) {
    SCOPED_TRACE("by " + input);
    const Values& gradient = gradients.at(input);
    if (gradient.size() <= kElementByElement) {
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        Values direction(gradient.size());
        direction[i] = 1;
        expect_slope(differences, input, gradient, direction);
      }
    } else {
      for (int i = 0; i < kDirections; ++i) {
        Values direction = normals(gradient.size(), static_cast<std::uint64_t>(i));
        const double length = std::sqrt(dot(direction, direction));
        for (double& component : direction) component /= length;
        expect_slope(differences, input, gradient, direction);
      }
    }
  }
}

class GradientOf : public ::testing::TestWithParam<OpDescription> {};

TEST_P(GradientOf, IsThatOfFiniteDifferences) {
  for (const OpCase& one : GetParam().cases(DType::kF64)) {
    if (!one.gradient) continue;
    SCOPED_TRACE(one.name);
    expect_gradient(one);
  }
}

// y = x x, whose backward is off by a millionth.
TEST(FiniteDifferences, FindAGradientThatIsALittleOff) {
  OpCase one;
  one.fields = {bench::input("x", DType::kF64, {1}, bench::normal(0, 3)),
                bench::output("y", DType::kF64, {1}, {})};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::Multiply{.a = t["x"], .b = t["x"], .y = t["y"]});
  };
  one.gradient = Gradient{.inputs = {"x"},
                          .outputs = {"y"},
                          .backward =
                              [](Ops& ops, const Tensors& t) {
                                ops.run(ops::Multiply{.a = t["x"], .b = t["dy"], .y = t["dx"]});
                                ops.run(ops::Scale{.x = t["dx"], .factor = 2 + 2e-6});
                              },
                          .weight = 1};
  const auto run = [one] { expect_gradient(one); };
  EXPECT_NONFATAL_FAILURE(run(), "expected evaluates to");
}

std::vector<OpDescription> with_gradients() {
  std::vector<OpDescription> found;
  for (const OpDescription& description : bench::op_descriptions()) {
    const auto cases = description.cases(DType::kF64);
    if (std::any_of(cases.begin(), cases.end(), [](const auto& one) { return !!one.gradient; })) {
      found.push_back(description);
    }
  }
  return found;
}

INSTANTIATE_TEST_SUITE_P(Described, GradientOf, ::testing::ValuesIn(with_gradients()), test_name);

}  // namespace
}  // namespace lockstep::ops_test
