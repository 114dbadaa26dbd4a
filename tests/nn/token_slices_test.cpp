// Sequences that are computed in slices of tokens: losses and gradients are those of whole ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn::token_slices_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kTokens = 11;
const MicroBatch kMicroBatch{.seed = 5, .step = 3, .first_sequence = 8, .loss_factor = 0.125};
using Lengths = std::vector<std::int64_t>;

Setup sliced_setup(const Lengths& slices, Recompute recompute = Recompute::kNone,
                   DType dtype = DType::kF32) {
  return {.shape = {.batch = 1, .sequence = kTokens},
          .dtype = dtype,
          .gradient = DType::kF32,
          .slices = slices,
          .recompute = recompute};
}

plan::StageBuffers buffers_of(std::size_t slices) {
  return plan::stage_buffers(
      plan::make_step_schedule(plan::find_pipeline_kind("terapipe"),
                               {.stages = 1, .slices = static_cast<int>(slices)}),
      0);
}

struct Result {
  std::vector<float> losses, gradients, evaluated;
};

std::vector<float> copied(const Tensor& tensor) {
  const auto values = tensor.as<const float>();
  return {values.begin(), values.end()};
}

// All slices forward, and backward from the last to the first; twice, so that what a micro-batch
// leaves in memory could change the next.
Result computed(Tiny tiny, const Setup& setup, Ops& ops, double dropout = 0) {
  const Model model = make_tiny(tiny, dropout);
  MemoryPlan plan = setup.slices.empty()
                        ? plan_memory(model, setup, ops, OptimizerState::kNone)
                        : plan_memory(model, setup, ops, OptimizerState::kNone, {}, {},
                                      Places::kFound, buffers_of(setup.slices.size()));
  Replica replica(make_tiny(tiny, dropout), std::move(plan), ops);
  replica.initialise(7);
  TinyBatch batch(setup.shape);
  Result result;
  result.evaluated = copied(replica.evaluate(batch.batch()));
  replica.zero_gradients();
  for (int repetition = 0; repetition < 2; ++repetition) {
    if (setup.slices.empty()) {
      result.losses = copied(replica.forward_backward(batch.batch(), kMicroBatch));
      continue;
    }
    const int slices = static_cast<int>(setup.slices.size());
    for (int slice = 0; slice < slices; ++slice) {
      replica.forward(0, {.slice = slice}, batch.batch(), kMicroBatch);
    }
    result.losses.clear();
    for (int slice = slices; slice-- > 0;) {
      const auto part = copied(replica.backward(0, {.slice = slice}, batch.batch(), kMicroBatch));
      result.losses.insert(result.losses.begin(), part.begin(), part.end());
    }
  }
  result.gradients = copied(replica.states().gradients);
  return result;
}

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(double{value}));
  return largest;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << i;
}

// Of every parameter.
void expect_gradients(Tiny tiny, const Result& got, const Result& want, double tolerance) {
  const auto ops = make_reference_ops();
  const FlatParameters flat =
      plan_memory(make_tiny(tiny), sliced_setup({}), *ops, OptimizerState::kNone).flat;
  for (const FlatParameter& parameter : flat.all()) {
    SCOPED_TRACE(parameter.name);
    const auto part = [&](const std::vector<float>& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(parameter.offset);
      return std::vector<float>(begin,
                                begin + static_cast<std::ptrdiff_t>(parameter.shape.elements()));
    };
    const std::vector<float> expected = part(want.gradients);
    expect_near(part(got.gradients), expected, tolerance * largest_of(expected));
  }
}

constexpr Tiny kCausal[] = {Tiny::kGpt2,  Tiny::kOddGpt2, Tiny::kLlama, Tiny::kOddLlama,
                            Tiny::kQwen3, Tiny::kGptNeox, Tiny::kGemma2};

TEST(TokenSlices, LossesAndGradientsAreThoseOfWholeSequences) {
  const auto reference = make_reference_ops();
  const auto cpu = make_cpu_ops(1);
  for (const Tiny tiny : kCausal) {
    const Result whole = computed(tiny, sliced_setup({}), *reference);
    for (const Lengths& slices :
         {Lengths{11}, Lengths{6, 5}, Lengths{1, 7, 3}, Lengths{5, 3, 2, 1}, Lengths(11, 1)}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective}) {
        for (Ops* const ops : {reference.get(), cpu.get()}) {
          SCOPED_TRACE(name(tiny) + " in " + std::to_string(slices.size()) + " slices");
          const Result sliced = computed(tiny, sliced_setup(slices, recompute), *ops);
          expect_near(sliced.losses, whole.losses, 1e-5);
          expect_near(sliced.evaluated, whole.evaluated, 1e-5);
          expect_gradients(tiny, sliced, whole, 1e-4);
        }
      }
    }
  }
}

TEST(TokenSlices, HalfPrecisionFollowsWholeSequences) {
  const auto ops = make_cpu_ops(1);
  for (const Tiny tiny : {Tiny::kGpt2, Tiny::kLlama}) {
    const Result whole = computed(tiny, sliced_setup({}, Recompute::kNone, DType::kBF16), *ops);
    const Result sliced =
        computed(tiny, sliced_setup({5, 4, 2}, Recompute::kNone, DType::kBF16), *ops);
    expect_near(sliced.losses, whole.losses, 5e-2);
    expect_gradients(tiny, sliced, whole, 5e-2);
  }
}

// Slices draw numbers of their own, and backward those of forward: recomputation keeps the bits.
TEST(TokenSlices, DropoutDrawsTheSameNumbersAgain) {
  const auto ops = make_cpu_ops(1);
  const Result none = computed(Tiny::kGpt2, sliced_setup({6, 5}), *ops, 0.3);
  const Result again =
      computed(Tiny::kGpt2, sliced_setup({6, 5}, Recompute::kSelective), *ops, 0.3);
  EXPECT_EQ(none.losses, again.losses);
  EXPECT_EQ(none.gradients, again.gradients);
  EXPECT_NE(none.losses, computed(Tiny::kGpt2, sliced_setup({6, 5}), *ops).losses);
}

TEST(TokenSlices, MustMakeTheSequence) {
  const auto ops = make_reference_ops();
  for (const Lengths& slices : {Lengths{5, 5}, Lengths{12}, Lengths{11, 0}}) {
    try {
      plan_memory(make_tiny(Tiny::kGpt2), sliced_setup(slices), *ops, OptimizerState::kNone);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("do not make a micro-batch of 1 sequences of 11"));
    }
  }
}

}  // namespace
}  // namespace lockstep::nn::token_slices_test
