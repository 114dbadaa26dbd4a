// A trainer beside transformers, number by number, on any device.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/nn/hugging_face/hugging_face.h"
#include "lockstep/tensor/host_view.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/train/model_io/hugging_face_fixture.h"

namespace lockstep::train {

inline void load(const Fixture& fixture, Trainer& trainer) {
  nn::load_hugging_face(fixture.file, shape_of(fixture.options), trainer.replica(), "parameter.");
}

inline void expect_logits_and_loss(const Fixture& fixture, Ops& ops, double of_logits,
                                   double of_loss) {
  Trainer trainer(fixture.options, ops);
  load(fixture, trainer);
  const std::vector<float> expected = fixture.floats("logits");
  const Buffer logits(expected.size() * sizeof(float), ops.device());
  const std::int64_t tokens = fixture.batch.shape.tokens();
  const Tensor rows =
      logits.tensor(DType::kF32, {tokens, static_cast<std::int64_t>(expected.size()) / tokens}, 0);
  const Tensor losses = trainer.replica().evaluate(fixture.batch, rows);
  ops.synchronize();
  EXPECT_LT(largest_difference(HostView(rows).as<float>(), expected), of_logits);
  const double loss = nn::sum_of(losses) / static_cast<double>(nn::count_targets(fixture.batch));
  EXPECT_NEAR(loss, fixture.floats("loss")[0], of_loss);
}

// `tolerance`: of the largest gradient of each parameter.
inline void expect_gradients(const Fixture& fixture, Ops& ops, double tolerance) {
  Trainer trainer(fixture.options, ops);
  nn::Replica& replica = trainer.replica();
  load(fixture, trainer);
  const auto targets = static_cast<float>(nn::count_targets(fixture.batch));
  replica.zero_gradients();
  replica.forward_backward(fixture.batch, {.step = 1, .loss_factor = 1 / targets});
  ops.synchronize();
  std::vector<float> values(replica.flat().elements());
  const Tensor expected = tensor_of(std::span(values));
  nn::read_hugging_face(fixture.file, shape_of(fixture.options), replica.flat(), expected,
                        "gradient.");
  for (const nn::FlatParameter& parameter : replica.flat().all()) {
    const auto theirs = nn::FlatParameters::view(expected, parameter).as<const float>();
    const HostView ours(replica.gradient(parameter.name));
    EXPECT_GT(largest(theirs), 0) << parameter.name << " is not tested";
    EXPECT_LT(largest_difference(ours.as<float>(), theirs), tolerance * largest(theirs))
        << parameter.name;
  }
}

inline void expect_trained_losses(const Fixture& fixture, Ops& ops, double tolerance) {
  Trainer trainer(fixture.options, ops);
  load(fixture, trainer);
  const std::vector<float> expected = fixture.floats("losses");
  ASSERT_EQ(expected.size(), 11u);
  for (std::size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(trainer.step({&fixture.batch, 1}).loss, expected[step], tolerance)
        << "after " << step << " steps";
  }
}

}  // namespace lockstep::train
