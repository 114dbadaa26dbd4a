// Gradients of whole models against differences of their losses, parameter by parameter.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/nn/tiny_models.h"

namespace lockstep::nn {
namespace {

// Where a step changes which experts a token goes to, the loss jumps. Such a model is moved by
// less, so that no token changes them, and its differences are less exact. kOddMixtral sends every
// token to all experts.
bool jumps(Tiny tiny) { return tiny == Tiny::kMixtral; }

class EveryModel : public ::testing::TestWithParam<std::tuple<std::string, Tiny>> {
 protected:
  std::unique_ptr<Ops> ops_ = make_ops(std::get<0>(GetParam()));
  Tiny tiny_ = std::get<1>(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Gradients, EveryModel,
                         ::testing::Combine(::testing::ValuesIn(all_ops()),
                                            ::testing::ValuesIn(kAllTiny)),
                         [](const auto& tested) {
                           std::string text =
                               std::get<0>(tested.param) + "_" + name(std::get<1>(tested.param));
                           for (char& letter : text) letter = letter == '-' ? '_' : letter;
                           return text;
                         });

// The loss with parameters moved along a direction. Dropout is on: it is the same for equal seeds.
class Slope {
 public:
  Slope(Replica& replica, const Batch& batch) : replica_(replica), batch_(batch) {}

  // By differences of fourth order, of steps that move the parameters by `distance` in all.
  double along(const Tensor& parameter, const std::vector<float>& direction, double distance) {
    const double near =
        loss(parameter, direction, distance) - loss(parameter, direction, -distance);
    const double far =
        loss(parameter, direction, 2 * distance) - loss(parameter, direction, -2 * distance);
    return (8 * near - far) / (12 * distance);
  }

 private:
  double loss(const Tensor& parameter, const std::vector<float>& direction, double distance) {
    const std::span<float> values = parameter.as<float>();
    const std::vector<float> before(values.begin(), values.end());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(values[i] + distance * static_cast<double>(direction[i]));
    }
    const Tensor losses = replica_.forward_backward(batch_, {.seed = 3, .step = 2});
    replica_.ops().synchronize();
    std::copy(before.begin(), before.end(), values.begin());
    return sum_of(losses);
  }

  Replica& replica_;
  const Batch& batch_;
};

TEST_P(EveryModel, GradientsAreTheSlopesOfTheLoss) {
  TinyBatch owner(tiny_batch_shape(tiny_));
  const Batch batch = owner.batch();
  Replica replica = make_replica(make_tiny(tiny_, 0.1, kVocabulary, 0), tiny_setup(tiny_), *ops_);
  replica.initialise(5);
  shake(replica, 0.2f);
  replica.forward_backward(batch, {.seed = 3, .step = 2});
  replica.ops().synchronize();
  std::vector<std::vector<float>> gradients;
  for (const FlatParameter& parameter : replica.flat().all()) {
    const auto values = FlatParameters::view(replica.states().gradients, parameter).as<float>();
    gradients.emplace_back(values.begin(), values.end());
  }
  Slope slope(replica, batch);
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    const FlatParameter& parameter = replica.flat().all()[p];
    // Along the gradient itself the slope is its length, and is known best.
    double square = 0;
    for (const float value : gradients[p]) square += static_cast<double>(value) * value;
    const double length = std::sqrt(square);
    ASSERT_GT(length, 1e-3) << parameter.name;
    std::vector<float> direction;
    for (const float value : gradients[p]) {
      direction.push_back(static_cast<float>(value / length));
    }
    const double distance = (jumps(tiny_) ? 0.02 : 1) * std::min(0.02, 0.05 / length);
    const double measured = slope.along(
        FlatParameters::view(replica.states().parameters, parameter), direction, distance);
    EXPECT_NEAR(measured / length, 1, jumps(tiny_) ? 3e-2 : 2e-3)
        << parameter.name << ", length " << length;
  }
}

}  // namespace
}  // namespace lockstep::nn
