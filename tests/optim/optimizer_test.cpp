#include "lockstep/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/io/safetensors.h"
#include "lockstep/optim/gradient_norm.h"
#include "lockstep/optim/loss_scale.h"
#include "tests/paths.h"

namespace lockstep::optim {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

std::vector<float> load(const char* name) {
  static const io::SafetensorsFile kFile(in_sources("tests/fixtures/optimizers.safetensors"));
  const auto loaded = kFile.load(name);
  const auto values = loaded.tensor.as<const float>();
  return {values.begin(), values.end()};
}

Tensor view(std::vector<float>& values) { return tensor_of(std::span(values)); }

// Runs the fixture's six steps and compares with torch after each. Gradients come twice as large
// and are scaled back.
void expect_as_torch(const OptimizerOptions& options, const char* name) {
  const auto ops = make_reference_ops();
  std::vector<float> master = load("start");
  const std::vector<float> gradients = load("gradients");
  const std::vector<float> expected = load(name);
  const std::size_t size = master.size();
  std::vector<float> first_moment(size), second_moment(size), velocity(size);
  for (std::size_t step = 0; step < 6; ++step) {
    std::vector<float> gradient(size);
    for (std::size_t i = 0; i < size; ++i) gradient[i] = 2 * gradients[step * size + i];
    Range range{.master = view(master), .gradient = view(gradient)};
    if (has_moments(options)) {
      range.first_moment = view(first_moment);
      range.second_moment = view(second_moment);
    }
    if (has_velocity(options)) range.velocity = view(velocity);
    update(*ops, options,
           {.step = static_cast<std::int64_t>(step) + 1, .rate = 0.01, .gradient_scale = 0.5},
           range);
    const std::span<const float> after(expected.data() + step * size, size);
    EXPECT_THAT(master, Pointwise(FloatNear(2e-6f), after)) << name << ", step " << step + 1;
  }
}

TEST(Optimizer, EachKindMovesAsItsTwinInTorch) {
  const OptimizerOptions adam{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  expect_as_torch(adam, "adamw");
  OptimizerOptions options = adam;
  options.kind = OptimizerKind::kAdam;
  expect_as_torch(options, "adam");
  options.kind = OptimizerKind::kSgd;
  options.momentum = 0.9;
  expect_as_torch(options, "momentum");
  options.momentum = 0;
  expect_as_torch(options, "sgd");
}

TEST(Optimizer, LeavesAloneWhatDoesNotDecay) {
  const auto ops = make_reference_ops();
  for (const OptimizerKind kind :
       {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd}) {
    const OptimizerOptions options{.kind = kind, .momentum = 0, .weight_decay = 0.5};
    for (const bool decays : {false, true}) {
      std::vector<float> master{1, -2, 3}, gradient(3), first_moment(3), second_moment(3);
      Range range{.master = view(master), .gradient = view(gradient), .decays = decays};
      if (has_moments(options)) {
        range.first_moment = view(first_moment);
        range.second_moment = view(second_moment);
      }
      update(*ops, options, {.rate = 0.1}, range);
      EXPECT_EQ(master == (std::vector<float>{1, -2, 3}), !decays) << name(kind);
    }
  }
}

TEST(Optimizer, RoundsTheCopyThatIsComputedWith) {
  const auto ops = make_reference_ops();
  std::vector<float> master{1, 1, 1}, gradient{0.001f, 0, -1}, first_moment(3), second_moment(3);
  std::vector<BFloat16> parameter(3);
  update(*ops, {.weight_decay = 0}, {.rate = 1e-3},
         {.master = view(master),
          .gradient = view(gradient),
          .parameter = tensor_of(std::span(parameter)),
          .first_moment = view(first_moment),
          .second_moment = view(second_moment)});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(parameter[i], to_bfloat16(master[i]));
  EXPECT_LT(master[0], 1);
  EXPECT_EQ(to_float(parameter[0]), 1) << "the step is too small for bf16: it stays in the master";
}

struct Moved {
  std::vector<float> master{1, -2, 3};
  std::vector<float> first_moment = std::vector<float>(3);
  std::vector<float> second_moment = std::vector<float>(3);
  friend bool operator==(const Moved&, const Moved&) = default;

  void update_by(std::vector<float> gradient, const OptimizerOptions& options,
                 const UpdateStep& step) {
    Range range{.master = view(master), .gradient = view(gradient)};
    if (has_moments(options)) {
      range.first_moment = view(first_moment);
      range.second_moment = view(second_moment);
    }
    update(*make_reference_ops(), options, step, range);
  }
};

TEST(Optimizer, FourPartsOfAStepGoByAQuarterOrAHalf) {
  const std::vector<float> gradients[] = {{1, 2, -3}, {-1, 0.5f, 2}, {0.25f, 1, 1}, {3, -1, 0}};
  const auto moved = [&](const OptimizerOptions& options, double rate, int parts) {
    Moved result;
    for (std::int64_t i = 0; i < 4; ++i) {
      result.update_by(gradients[i], options, {.step = i + 1, .rate = rate, .parts = parts});
    }
    return result;
  };
  const OptimizerOptions adamw{.beta2 = 0.96875, .weight_decay = 0.5};
  OptimizerOptions part = adamw;
  part.beta2 = 1 - 0.03125 / 4;
  part.weight_decay = 0.25;
  EXPECT_EQ(moved(adamw, 0.125, 4), moved(part, 0.0625, 1));
  OptimizerOptions adam = adamw;
  adam.kind = part.kind = OptimizerKind::kAdam;
  part.weight_decay = adam.weight_decay;
  EXPECT_EQ(moved(adam, 0.125, 4), moved(part, 0.0625, 1));
  const OptimizerOptions sgd{.kind = OptimizerKind::kSgd, .momentum = 0, .weight_decay = 0.5};
  EXPECT_EQ(moved(sgd, 0.125, 4), moved(sgd, 0.03125, 1));
}

TEST(Optimizer, PartsOfAStepDoWhatAllOfItDoesWhereThatIsLinear) {
  const std::vector<float> gradient{1, 2, -3};
  const std::vector<float> none{0, 0, 0};
  const OptimizerOptions sgd{.kind = OptimizerKind::kSgd, .momentum = 0, .weight_decay = 0};
  const OptimizerOptions adamw{.beta2 = 0.99, .weight_decay = 1e-3};
  const auto moved = [](const std::vector<float>& by, const OptimizerOptions& options, int parts) {
    Moved result;
    for (int i = 1; i <= parts; ++i) {
      result.update_by(by, options, {.step = i, .rate = 0.1, .parts = parts});
    }
    return result;
  };
  for (const int parts : {2, 3, 7}) {
    EXPECT_THAT(moved(gradient, sgd, parts).master,
                Pointwise(FloatNear(1e-6F), moved(gradient, sgd, 1).master));
    EXPECT_THAT(moved(gradient, adamw, parts).second_moment,
                Pointwise(FloatNear(5e-4F), moved(gradient, adamw, 1).second_moment));
    EXPECT_THAT(moved(none, adamw, parts).master,
                Pointwise(FloatNear(1e-6F), moved(none, adamw, 1).master));
  }
}

TEST(GradientNorm, IsThatOfAllRangesTogether) {
  const auto ops = make_reference_ops();
  std::vector<float> a{3, 0, 0}, b{4}, none;
  std::vector<BFloat16> c{to_bfloat16(12)};
  std::vector<double> sums(5);
  const std::vector<Tensor> ranges{view(a), view(b), tensor_of(std::span(c)), view(none)};
  EXPECT_DOUBLE_EQ(gradient_norm(*ops, ranges, tensor_of(std::span(sums))), 13);
  EXPECT_EQ(gradient_norm(*ops, {}, tensor_of(std::span(sums))), 0);
  b[0] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(gradient_norm(*ops, ranges, tensor_of(std::span(sums)))));
  a[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(gradient_norm(*ops, ranges, tensor_of(std::span(sums)))));
  EXPECT_THROW(gradient_norm(*ops, ranges, tensor_of(std::span(sums).first(3))), Error);
}

TEST(GradientNorm, LargeGradientsOfF16DoNotOverflowIt) {
  const auto ops = make_reference_ops();
  std::vector<Half> a(100, to_half(65504));
  std::vector<double> sums(1);
  const Tensor range = tensor_of(std::span(a));
  EXPECT_DOUBLE_EQ(gradient_norm(*ops, {&range, 1}, tensor_of(std::span(sums))), 655040);
}

TEST(ClipFactor, BringsANormDownToTheLimitAndNeverUp) {
  EXPECT_EQ(clip_factor(4, 1), 0.25);
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(1, 1), 1);
  EXPECT_EQ(clip_factor(1000, 0), 1);
  EXPECT_EQ(clip_factor(0, 1), 1);
}

TEST(LossScale, HalvesOnOverflowAndDoublesAfterPatience) {
  const LossScaleOptions options{.initial = 65536, .growth_interval = 3};
  LossScale state{.scale = options.initial};
  state = after_overflow(state);
  EXPECT_EQ(state.scale, 32768);
  state = after_good_step(after_good_step(state, options), options);
  EXPECT_EQ(state.scale, 32768);
  EXPECT_EQ(state.good_steps, 2);
  EXPECT_EQ(after_overflow(state).good_steps, 0) << "patience begins anew";
  state = after_good_step(state, options);
  EXPECT_EQ(state.scale, 65536);
  EXPECT_EQ(state.good_steps, 0);
}

TEST(LossScale, StaysAFiniteNumberWhateverComes) {
  const LossScaleOptions options{.growth_interval = 1};
  LossScale up{.scale = options.initial};
  LossScale down = up;
  for (int i = 0; i < 5000; ++i) {
    up = after_good_step(up, options);
    down = after_overflow(down);
  }
  EXPECT_TRUE(std::isfinite(static_cast<float>(up.scale)));
  EXPECT_GT(static_cast<float>(down.scale), 0);
}

TEST(OptimOptions, AreReadFromToml) {
  OptimizerOptions optimizer;
  LossScaleOptions loss_scale;
  Config config;
  bind(config, optimizer);
  bind(config, loss_scale);
  config.read_toml(
      "[optimizer]\nkind = 'sgd'\nmomentum = 0.5\nclip = 2\n[loss_scale]\npatience = 7",
      "job.toml");
  EXPECT_EQ(optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(optimizer.momentum, 0.5);
  EXPECT_EQ(optimizer.max_grad_norm, 2);
  EXPECT_EQ(loss_scale.growth_interval, 7);
  EXPECT_THROW(config.set("optimizer.beta1=1"), Error);
}

}  // namespace
}  // namespace lockstep::optim
