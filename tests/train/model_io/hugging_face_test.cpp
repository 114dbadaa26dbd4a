// Tiny models of Hugging Face transformers, met number by number (tests/fixtures/).
#include "lockstep/nn/hugging_face/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/nn/hugging_face/names.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/train/model_io/hugging_face_fixture.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kLogits = 1e-5;
constexpr double kLoss = 1e-6;
constexpr double kGradient = 1e-4;  // of the largest in the parameter
constexpr double kTrainedLoss = 1e-5;

struct Case {
  const char* model;
  const char* ops;
};

class HuggingFace : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Ops> make_ops() const {
    return std::string(GetParam().ops) == "reference" ? make_reference_ops() : make_cpu_ops(2);
  }
  const Fixture fixture_{GetParam().model};
};

TEST_P(HuggingFace, LogitsAndLossAreTheSame) {
  const auto ops = make_ops();
  Trainer trainer(fixture_.options, *ops);
  nn::Replica& replica = trainer.replica();
  nn::load_hugging_face(fixture_.file, fixture_.family, replica, "parameter.");
  const std::vector<float> expected = fixture_.floats("logits");
  std::vector<float> logits(expected.size());
  const std::int64_t tokens = fixture_.batch.shape.tokens();
  const Tensor losses = replica.evaluate(
      fixture_.batch,
      tensor_of(std::span(logits), {tokens, static_cast<std::int64_t>(logits.size()) / tokens}));
  ops->synchronize();
  EXPECT_LT(largest_difference(logits, expected), kLogits);
  const double loss = nn::sum_of(losses) / static_cast<double>(nn::count_targets(fixture_.batch));
  EXPECT_NEAR(loss, fixture_.floats("loss")[0], kLoss);
}

TEST_P(HuggingFace, EveryGradientIsTheSame) {
  const auto ops = make_ops();
  Trainer trainer(fixture_.options, *ops);
  nn::Replica& replica = trainer.replica();
  nn::load_hugging_face(fixture_.file, fixture_.family, replica, "parameter.");
  const auto targets = static_cast<float>(nn::count_targets(fixture_.batch));
  replica.zero_gradients();
  replica.forward_backward(fixture_.batch, {.step = 1, .loss_factor = 1 / targets});
  ops->synchronize();
  std::vector<float> values(replica.flat().elements());
  const Tensor expected = tensor_of(std::span(values));
  nn::read_hugging_face(fixture_.file, fixture_.family, replica.flat(), expected, "gradient.");
  for (const nn::FlatParameter& parameter : replica.flat().all()) {
    const auto theirs = nn::FlatParameters::view(expected, parameter).as<const float>();
    const auto ours = replica.gradient(parameter.name).as<const float>();
    EXPECT_GT(largest(theirs), 0) << parameter.name << " is not tested";
    EXPECT_LT(largest_difference(ours, theirs), kGradient * largest(theirs)) << parameter.name;
  }
}

TEST_P(HuggingFace, TenStepsOfAdamWGoTheSameWay) {
  const auto ops = make_ops();
  Trainer trainer(fixture_.options, *ops);
  nn::load_hugging_face(fixture_.file, fixture_.family, trainer.replica(), "parameter.");
  const std::vector<float> expected = fixture_.floats("losses");
  ASSERT_EQ(expected.size(), 11u);
  for (std::size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(trainer.step({&fixture_.batch, 1}).loss, expected[step], kTrainedLoss)
        << "after " << step << " steps";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HuggingFace,
                         ::testing::Values(Case{"gpt2", "reference"}, Case{"llama", "reference"},
                                           Case{"bert", "reference"}, Case{"gpt2", "cpu"},
                                           Case{"llama", "cpu"}, Case{"bert", "cpu"}),
                         [](const auto& test) {
                           return std::string(test.param.model) + "_" + test.param.ops;
                         });

TEST(HuggingFaceNames, ArePutTogetherAndTurned) {
  EXPECT_THAT(
      nn::hugging_face_tensors(plan::Family::kLlama, "layer.12.mlp.gate_up.weight").names,
      ElementsAre("model.layers.12.mlp.gate_proj.weight", "model.layers.12.mlp.up_proj.weight"));
  EXPECT_TRUE(nn::hugging_face_tensors(plan::Family::kGpt2, "layer.0.mlp.up.weight").transposed);
  EXPECT_FALSE(nn::hugging_face_tensors(plan::Family::kGpt2, "layer.0.mlp.up.bias").transposed);
  for (const char* name : {"layer.0", "layer.0.mlp.gate_up.weight", "layer.", "tail.weight", ""}) {
    EXPECT_THROW(nn::hugging_face_tensors(plan::Family::kGpt2, name), Error) << name;
  }
}

TEST(HuggingFaceNames, AFileOfOtherSizesIsRefused) {
  Fixture fixture("gpt2");
  fixture.options.model.feed_forward = 64;
  const auto ops = make_reference_ops();
  Trainer trainer(fixture.options, *ops);
  try {
    nn::load_hugging_face(fixture.file, plan::Family::kGpt2, trainer.replica(), "parameter.");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("does not match the model's 'layer."));
    EXPECT_THAT(error.what(), HasSubstr("check that the model's sizes are those of the file"));
  }
}

TEST(HuggingFaceNames, AFileOfTheBareModelIsReadToo) {
  const Fixture fixture("gpt2");
  std::vector<io::SafetensorsFile::Loaded> loaded;
  std::vector<io::NamedTensor> bare;
  for (const auto& entry : fixture.file.entries()) {
    const std::string prefix = "parameter.transformer.";
    if (!entry.name.starts_with(prefix)) continue;
    loaded.push_back(fixture.file.load(entry.name));
    bare.push_back({entry.name.substr(prefix.size()), loaded.back().tensor});
  }
  const std::string path = ::testing::TempDir() + "lockstep_bare.safetensors";
  io::write_safetensors(path, bare);
  const auto ops = make_reference_ops();
  Trainer trainer(fixture.options, *ops);
  nn::load_hugging_face(io::SafetensorsFile(path), plan::Family::kGpt2, trainer.replica());
  EXPECT_EQ(trainer.replica().parameter("layer.1.norm1.gain").as<float>()[3],
            fixture.floats("parameter.transformer.h.1.ln_1.weight")[3]);
}

}  // namespace
}  // namespace lockstep::train
