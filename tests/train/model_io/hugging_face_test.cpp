// Tiny models of Hugging Face transformers, met number by number (tests/fixtures/).
#include "lockstep/nn/hugging_face/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/nn/hugging_face/names.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/train/model_io/hugging_face_parity.h"

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
  expect_logits_and_loss(fixture_, *make_ops(), kLogits, kLoss);
}

TEST_P(HuggingFace, EveryGradientIsTheSame) { expect_gradients(fixture_, *make_ops(), kGradient); }

TEST_P(HuggingFace, TenStepsOfAdamWGoTheSameWay) {
  expect_trained_losses(fixture_, *make_ops(), kTrainedLoss);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const char* model : kFixtureModels) {
    for (const char* ops : {"reference", "cpu"}) cases.push_back({model, ops});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, HuggingFace, ::testing::ValuesIn(all_cases()),
                         [](const auto& test) {
                           return std::string(test.param.model) + "_" + test.param.ops;
                         });

TEST(HuggingFaceNames, ArePutTogetherAndTurned) {
  EXPECT_THAT(
      nn::hugging_face_tensors(plan::Family::kLlama, "layer.12.mlp.gate_up.weight").names,
      ElementsAre("model.layers.12.mlp.gate_proj.weight", "model.layers.12.mlp.up_proj.weight"));
  EXPECT_THAT(
      nn::hugging_face_tensors(plan::Family::kMixtral, "layer.3.mlp.experts.11.gate_up.weight")
          .names,
      ElementsAre("model.layers.3.block_sparse_moe.experts.11.w1.weight",
                  "model.layers.3.block_sparse_moe.experts.11.w3.weight"));
  EXPECT_TRUE(nn::hugging_face_tensors(plan::Family::kGpt2, "layer.0.mlp.up.weight").transposed);
  EXPECT_FALSE(nn::hugging_face_tensors(plan::Family::kGpt2, "layer.0.mlp.up.bias").transposed);
  for (const char* name : {"layer.0", "layer.0.mlp.gate_up.weight", "layer.", "tail.weight", ""}) {
    EXPECT_THROW(nn::hugging_face_tensors(plan::Family::kGpt2, name), Error) << name;
  }
}

TEST(HuggingFaceNames, RowsOfAHeadLieTogetherInGptNeox) {
  EXPECT_TRUE(
      nn::hugging_face_tensors(plan::Family::kGptNeox, "layer.0.attention.qkv.bias").by_head);
  std::vector<std::int64_t> theirs(12, -1);  // ours that each of their rows is
  for (const nn::RowRun& run : nn::runs_by_head(12, 2)) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      theirs.at(static_cast<std::size_t>(run.theirs + i)) = run.ours + i;
    }
  }
  // Of head 0: queries 0 and 1, keys 4 and 5, values 8 and 9.
  EXPECT_THAT(theirs, ElementsAre(0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11));
}

TEST(HuggingFaceNames, AFileOfOtherSizesIsRefused) {
  Fixture fixture("gpt2");
  fixture.options.model.feed_forward = 64;
  const auto ops = make_reference_ops();
  Trainer trainer(fixture.options, *ops);
  try {
    nn::load_hugging_face(fixture.file, shape_of(fixture.options), trainer.replica(), "parameter.");
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
  nn::load_hugging_face(io::SafetensorsFile(path), shape_of(fixture.options), trainer.replica());
  EXPECT_EQ(trainer.replica().parameter("layer.1.norm1.gain").as<float>()[3],
            fixture.floats("parameter.transformer.h.1.ln_1.weight")[3]);
}

}  // namespace
}  // namespace lockstep::train
