// Which device a run takes, without a GPU to ask.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

std::string refusal(const TrainOptions& options) {
  try {
    device_of(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(RunDevice, IsTheOneThatIsNamed) {
  TrainOptions options;
  options.device = "cpu";
  EXPECT_EQ(device_of(options), Device{});
  options.device = "cuda:3";
  EXPECT_EQ(device_of(options), (Device{DeviceKind::kCuda, 3}));
  for (const char* name : {"", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:1x", "cpu:0"}) {
    options.device = name;
    EXPECT_THAT(refusal(options), HasSubstr("is not a device")) << name;
  }
}

TEST(RunDevice, SettingsThatAGpuDoesNotServeAreRefusedByNameAndLeftToTheCpuByAuto) {
  const std::pair<const char*, std::function<void(TrainOptions&)>> unserved[] = {
      {"several nodes",
       [](TrainOptions& o) {
         o.batch.workers = 2;
         o.parallel.machines = 2;
         o.parallel.comm.device_backend = DeviceBackend::kNative;
       }},
      {"model.rope_scaling = \"longrope\" with 129 pairs",
       [](TrainOptions& o) {
         o.model.family = ModelFamily::kPhi3;
         o.model.rope_scaling = RopeScaling::kLongRope;
         o.model.rope_short_factors.assign(129, 1);
         o.model.rope_long_factors.assign(129, 2);
       }},
      {"model.relative_buckets = 258; take at most 256",
       [](TrainOptions& o) {
         o.model.family = ModelFamily::kT5;
         o.model.relative_buckets = 258;
       }},
      {"parallel.algorithm", [](TrainOptions& o) { o.parallel.algorithm = "ring"; }},
      {"offload.gradients = \"file\" with parallel.compression = \"topk\"",
       [](TrainOptions& o) {
         o.batch.workers = 2;
         o.offload.tiers.gradients = Tier::kFile;
         o.parallel.compression.compression = parallel::Compression::kTopk;
       }},
      {"offload.gradients = \"host\" with parallel.compression = \"int8\"",
       [](TrainOptions& o) {
         o.batch.workers = 2;
         o.offload.tiers.gradients = Tier::kHost;
         o.parallel.compression.compression = parallel::Compression::kInt8;
       }},
      {"offload.parameters = \"host\" with parallel.", [](TrainOptions& o) {
         o.batch.workers = 2;
         o.parallel.zero = 3;
         o.parallel.quantized_weights = parallel::Quantization::kInt8;
         o.offload.tiers.parameters = Tier::kHost;
       }}};
  for (const auto& [words, change] : unserved) {
    TrainOptions options;
    change(options);
    options.device = "cuda";
    EXPECT_THAT(refusal(options), HasSubstr(words));
    options.device = "auto";
    EXPECT_EQ(device_of(options), Device{}) << words;
    options.device = "cpu";
    EXPECT_EQ(unused_gpu(options), "") << words;
  }
}

TEST(RunDevice, Fp8IsForOneRank) {
  TrainOptions options;
  options.precision = plan::Precision::kFp8;
  options.device = "cuda";
  options.parallel.tensor = 2;
  EXPECT_THAT(refusal(options), HasSubstr("train.precision = \"fp8\" with 2 ranks"));
  options.parallel.tensor = 1;
  options.parallel.pipeline = 4;
  EXPECT_THAT(refusal(options), HasSubstr("train.precision = \"fp8\" with 4 ranks"));
}

}  // namespace
}  // namespace lockstep::train
