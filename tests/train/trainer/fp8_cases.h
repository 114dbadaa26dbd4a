// Training in FP8, the same claims for the CPU's plain loops and for a GPU: the loss falls as in
// bf16, the same bits come every time and however much is recomputed, and a run that was
// interrupted resumes to the bit.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/tensor/host_view.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/train/trainer/random_sequences.h"

namespace lockstep::train::fp8_test {

inline constexpr std::int64_t kLength = 8;

inline TrainOptions options_of(plan::Precision precision, ModelFamily family) {
  TrainOptions options = tiny_options(precision);
  options.model.family = family;
  options.model.hidden = 32;
  options.model.feed_forward = 64;
  options.batch = {.sequence = kLength, .micro = 4, .accumulation = 1};
  return options;
}

struct Trained {
  std::vector<float> master;
  std::vector<float> scaling;
  std::vector<double> losses;
  bool operator==(const Trained&) const = default;
};

inline std::vector<float> numbers_of(const Tensor& tensor) {
  if (!ops::is_given(tensor)) return {};
  const HostView view(tensor);
  const auto elements = view.as<float>();
  return {elements.begin(), elements.end()};
}

inline Trained train(Trainer& trainer, int steps) {
  Sequences sequences(4, kLength);
  Trained result;
  for (int i = 0; i < steps; ++i) {
    const auto batches = sequences.batches(trainer.replica().setup().shape.batch);
    result.losses.push_back(trainer.step(batches).loss);
  }
  result.master = numbers_of(trainer.replica().states().master);
  result.scaling = numbers_of(trainer.replica().scaling());
  return result;
}

inline Trained train(Ops& ops, const TrainOptions& options, int steps) {
  Trainer trainer(options, ops);
  return train(trainer, steps);
}

// The losses are those of bf16, nearly; and not exactly, for then nothing would be in 8 bits.
inline void expect_learns_as_bf16(Ops& ops, ModelFamily family) {
  constexpr int kSteps = 24;
  const Trained fp8 = train(ops, options_of(plan::Precision::kFp8, family), kSteps);
  const Trained bf16 = train(ops, options_of(plan::Precision::kBf16, family), kSteps);
  EXPECT_NEAR(fp8.losses.front(), bf16.losses.front(), 0.02 * bf16.losses.front());
  EXPECT_LT(fp8.losses.back(), 0.7 * fp8.losses.front());
  EXPECT_NEAR(fp8.losses.back(), bf16.losses.back(), 0.1 * bf16.losses.front());
  EXPECT_NE(fp8.losses, bf16.losses);
  for (std::size_t row = 0; row < fp8.scaling.size(); row += ops::kScaling) {
    EXPECT_GT(fp8.scaling[row + ops::kScale], 0) << "scale " << row / ops::kScaling;
  }
}

inline void expect_the_same_bits(Ops& ops, ModelFamily family) {
  TrainOptions options = options_of(plan::Precision::kFp8, family);
  options.model.dropout = 0.1;
  for (const int micro : {4, 2}) {
    options.batch.micro = micro;
    options.batch.accumulation = 4 / micro;
    options.recompute = RecomputeChoice::kNone;
    const Trained once = train(ops, options, 4);
    for (const RecomputeChoice recompute :
         {RecomputeChoice::kNone, RecomputeChoice::kSelective, RecomputeChoice::kFull}) {
      options.recompute = recompute;
      EXPECT_EQ(train(ops, options, 4), once) << name(family) << ", " << name(recompute);
    }
  }
  TrainOptions other = options;
  other.seed = 2;
  EXPECT_NE(train(ops, other, 4), train(ops, options, 4));
}

// Also with a look at the validation loss in between, which is no part of training.
inline void expect_resumes_to_the_bit(Ops& ops) {
  const TrainOptions options = options_of(plan::Precision::kFp8, ModelFamily::kGpt2);
  const Trained whole = train(ops, options, 6);
  const ScratchFolder folder;
  Trainer first(options, ops);
  train(first, 3);
  CheckpointFolder(folder.path())
      .save(first.replica(), {.state = first.state(), .config = "", .tokenizer = ""}, {});
  Trainer second(options, ops);
  Sequences sequences(4, kLength);
  second.replica().evaluate(sequences.batches(4).front());
  const auto state = CheckpointFolder(folder.path()).restore(second.replica(), {});
  ASSERT_TRUE(state);
  second.set_state(*state);
  second.replica().evaluate(sequences.batches(4).front());
  const Trained rest = train(second, 3);
  EXPECT_EQ(rest.master, whole.master);
  EXPECT_EQ(rest.scaling, whole.scaling);
}

}  // namespace lockstep::train::fp8_test
