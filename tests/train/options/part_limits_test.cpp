// Parts of models that a device or a mesh lacks are refused before a run, or done without.
#include "lockstep/train/options/part_limits.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::train::part_limits_test {
namespace {

TrainOptions with_family(ModelFamily family) {
  TrainOptions options;
  options.model.family = family;
  options.model.layers = 2;
  options.model.hidden = 64;
  options.model.heads = 4;
  options.model.vocabulary = 50;
  options.batch.sequence = 16;
  return options;
}

TrainOptions with_window(int window) {
  TrainOptions options = with_family(ModelFamily::kLlama);
  options.model.window = window;
  return options;
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    return error.what();
  }
  return "";
}

std::string refusal_of_gpu(TrainOptions options) {
  options.device = "cuda";
  return refusal([&] { device_of(options); });
}

TEST(PartLimits, AGpuRefusesInOneSentence) {
  EXPECT_EQ(
      refusal_of_gpu(with_window(8)),
      "run.device = \"cuda\" does not support model.window = 8; take sequences no longer than "
      "that, or set run.device = \"cpu\"");
  EXPECT_EQ(refusal_of_gpu(with_family(ModelFamily::kQwen3)),
            "run.device = \"cuda\" does not support model.family = \"qwen3\", whose queries and "
            "keys have norms; take another family, or set run.device = \"cpu\"");
  EXPECT_EQ(refusal_of_gpu(with_family(ModelFamily::kGptNeox)),
            "run.device = \"cuda\" does not support model.rotary_share = 0.25; take 1, or set "
            "run.device = \"cpu\"");
  TrainOptions named;
  named.model.name = "phi3-3.8b";
  EXPECT_EQ(part_limit(named, PartPlace::kGpu).part, "model.window = 2047");
  named.batch.sequence = 2047;
  EXPECT_EQ(part_limit(named, PartPlace::kGpu).part, "");
}

TEST(PartLimits, WhatIsSupportedIsNotRefused) {
  EXPECT_EQ(refusal_of_gpu(with_window(16)), "");  // as long as the sequences
  EXPECT_EQ(refusal_of_gpu(with_window(0)), "");
  EXPECT_EQ(refusal_of_gpu(with_family(ModelFamily::kPhi3)), "");
  TrainOptions whole = with_family(ModelFamily::kGptNeox);
  whole.model.rotary_share = 1;
  EXPECT_EQ(refusal_of_gpu(whole), "");
}

TEST(PartLimits, ARingRefusesAWindowAndAutoTakesHeads) {
  TrainOptions options = with_window(8);
  options.batch.workers = 2;
  options.batch.context = 2;
  options.batch.micro = 1;
  options.parallel.context = 2;
  options.parallel.context_attention = parallel::ContextChoice::kRing;
  EXPECT_EQ(refusal([&] { check(options); }),
            "model.window = 8 is not supported with parallel.context_attention = \"ring\"; take "
            "\"heads\", or take sequences no longer than that");
  options.parallel.context_attention = parallel::ContextChoice::kAuto;
  EXPECT_EQ(refusal([&] { check(options); }), "");
  EXPECT_EQ(context_of(options, 16).attention, nn::ContextAttention::kHeads);
  options.model.window = 0;
  EXPECT_EQ(context_of(options, 16).attention, nn::ContextAttention::kRing);
}

}  // namespace
}  // namespace lockstep::train::part_limits_test
