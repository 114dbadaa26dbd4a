// Parts of models that a mesh lacks are refused before a run, or done without; a GPU has all.
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

TEST(PartLimits, AGpuHasAllPartsOfModels) {
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kPhi3, ModelFamily::kGptNeox,
                                   ModelFamily::kQwen3, ModelFamily::kMixtral}) {
    EXPECT_EQ(refusal_of_gpu(with_family(family)), "") << name(family);
  }
  EXPECT_EQ(refusal_of_gpu(with_window(8)), "");
}

TEST(PartLimits, AGpuRefusesThePartsOfGemma2) {
  EXPECT_EQ(refusal_of_gpu(with_family(ModelFamily::kGemma2)),
            "run.device = \"cuda\" does not support the norms, gates and soft caps of models of "
            "family gemma2; take another family, or set run.device = \"cpu\"");
  TrainOptions options = with_family(ModelFamily::kGemma2);
  options.device = "auto";
  EXPECT_EQ(device_of(options), Device{});
}

TEST(PartLimits, AGpuRefusesToDivideExperts) {
  TrainOptions options = with_family(ModelFamily::kMixtral);
  options.parallel.expert = 2;
  EXPECT_EQ(refusal_of_gpu(options),
            "run.device = \"cuda\" does not support parallel.expert = 2; leave it out, or set "
            "run.device = \"cpu\"");
}

TEST(PartLimits, AWindowIsThatOfAModelByItsName) {
  TrainOptions named;
  named.model.name = "phi3-3.8b";
  EXPECT_EQ(ring_limit(named).part, "model.window = 2047");
  named.batch.sequence = 2047;
  EXPECT_EQ(ring_limit(named).part, "");
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
