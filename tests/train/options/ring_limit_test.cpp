// What a ring or a GPU does not support of a model is refused before a run, or done without.
#include "lockstep/train/options/ring_limit.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::train::ring_limit_test {
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

TEST(RingLimit, AGpuHasAllPartsOfModels) {
  for (const ModelFamily family :
       {ModelFamily::kLlama, ModelFamily::kPhi3, ModelFamily::kGptNeox, ModelFamily::kQwen3,
        ModelFamily::kGemma2, ModelFamily::kMixtral}) {
    EXPECT_EQ(refusal_of_gpu(with_family(family)), "") << name(family);
  }
  EXPECT_EQ(refusal_of_gpu(with_window(8)), "");
  TrainOptions divided = with_family(ModelFamily::kMixtral);
  divided.parallel.expert = 2;
  EXPECT_EQ(refusal_of_gpu(divided), "");
}

TEST(RingLimit, AWindowIsThatOfAModelByItsName) {
  TrainOptions named;
  named.model.name = "phi3-3.8b";
  EXPECT_EQ(ring_limit(named), "model.window = 2047");
  named.batch.sequence = 2047;
  EXPECT_EQ(ring_limit(named), "");
}

TEST(RingLimit, ARingRefusesAWindowAndAutoTakesHeads) {
  TrainOptions options = with_window(8);
  options.batch.workers = 2;
  options.batch.context = 2;
  options.batch.micro = 1;
  options.parallel.context = 2;
  options.parallel.context_attention = parallel::ContextChoice::kRing;
  EXPECT_EQ(refusal([&] { check(options); }),
            "model.window = 8 is not supported with parallel.context_attention = \"ring\"; take "
            "\"heads\", or sequences no longer than that");
  options.parallel.context_attention = parallel::ContextChoice::kAuto;
  EXPECT_EQ(refusal([&] { check(options); }), "");
  EXPECT_EQ(context_of(options, 16).attention, nn::ContextAttention::kHeads);
  options.model.window = 0;
  EXPECT_EQ(context_of(options, 16).attention, nn::ContextAttention::kRing);
}

}  // namespace
}  // namespace lockstep::train::ring_limit_test
