// The worked examples of one training step: a linear model of two weights and a bias.
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "lockstep/nn/models/models.h"
#include "lockstep/nn/replica/replica.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn {
namespace {

struct Item {
  std::array<float, 2> x;
  float y;
};
constexpr Item kFirst = {{6, 2}, 15};
constexpr Item kSecond = {{5, 2}, 12};
constexpr double kRate = 1e-3;

// Figures are printed with three digits, rounded.
constexpr double kThreeDigits = 5.1e-4;
constexpr double kFourDigits = 5.1e-5;

class LinearModel : public ::testing::TestWithParam<std::string> {
 protected:
  LinearModel()
      : ops_(make_ops(GetParam())),
        replica_(make_replica(make_linear_model(2), nn::Setup{}, *ops_, OptimizerState::kNone)) {
    replica_.initialise(1);
    const auto weights = replica_.parameter("linear.weight").as<float>();
    weights[0] = 0.773f;
    weights[1] = 0.321f;
    replica_.parameter("linear.bias").as<float>()[0] = 0.067f;
  }

  Batch batch_of(const Item& item) {
    item_ = item;
    Batch batch;
    batch.inputs = tensor_of(std::span<float>(item_.x), {1, 2});
    batch.outputs = tensor_of(std::span<float>(&item_.y, 1), {1, 1});
    return batch;
  }

  double predict(const Item& item) {
    float y = 0;
    replica_.evaluate(batch_of(item), tensor_of(std::span<float>(&y, 1), {1, 1}));
    ops_->synchronize();
    return static_cast<double>(y);
  }
  double loss(const Item& item) {
    const Tensor losses = replica_.forward_backward(batch_of(item));
    ops_->synchronize();
    return sum_of(losses);
  }
  void update() {
    const States& states = replica_.states();
    ops_->run(ops::Sgd{.master = states.master, .gradient = states.gradients, .rate = kRate});
    ops_->synchronize();
  }

  void expect_gradients(double w1, double w2, double b) {
    const auto weights = replica_.gradient("linear.weight").as<const float>();
    EXPECT_NEAR(weights[0], w1, kThreeDigits);
    EXPECT_NEAR(weights[1], w2, kThreeDigits);
    EXPECT_NEAR(replica_.gradient("linear.bias").as<const float>()[0], b, kThreeDigits);
  }
  void expect_parameters(double w1, double w2, double b) {
    const auto weights = replica_.parameter("linear.weight").as<const float>();
    EXPECT_NEAR(weights[0], w1, kFourDigits);
    EXPECT_NEAR(weights[1], w2, kFourDigits);
    EXPECT_NEAR(replica_.parameter("linear.bias").as<const float>()[0], b, kFourDigits);
  }

  std::unique_ptr<Ops> ops_;
  Replica replica_;
  Item item_{};
};
INSTANTIATE_TEST_SUITE_P(Training, LinearModel, ::testing::ValuesIn(all_ops()),
                         [](const auto& tested) { return tested.param; });

TEST_P(LinearModel, LearnsFromTwoItemsOneAfterTheOther) {
  EXPECT_NEAR(predict(kFirst), 5.347, kThreeDigits);
  EXPECT_NEAR(loss(kFirst), 93.180, kThreeDigits);
  expect_gradients(-115.836, -38.612, -19.306);
  update();
  expect_parameters(0.8888, 0.3596, 0.0863);

  replica_.zero_gradients();
  EXPECT_NEAR(predict(kSecond), 5.2497, kFourDigits);  // printed as 5.249: cut, not rounded
  EXPECT_NEAR(loss(kSecond), 45.566, kThreeDigits);
  expect_gradients(-67.503, -27.001, -13.501);
  update();
  expect_parameters(0.9563, 0.3866, 0.0998);
}

TEST_P(LinearModel, AddsUpTheGradientsOfBothItemsBeforeOneUpdate) {
  loss(kFirst);
  loss(kSecond);
  expect_gradients(-190.096, -68.316, -34.158);
  update();
  expect_parameters(0.9631, 0.3893, 0.1012);
}

}  // namespace
}  // namespace lockstep::nn
