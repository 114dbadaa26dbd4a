#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/train/trainer/fp8_cases.h"

namespace lockstep::train {
namespace {

TEST(Fp8Training, LearnsAsBf16Does) {
  const auto ops = make_cpu_ops(2);
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
    fp8_test::expect_learns_as_bf16(*ops, family);
  }
}

TEST(Fp8Training, GivesTheSameBitsHoweverMuchIsRecomputed) {
  const auto ops = make_cpu_ops(2);
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
    fp8_test::expect_the_same_bits(*ops, family);
  }
}

TEST(Fp8Training, ResumesFromACheckpointToTheBit) {
  fp8_test::expect_resumes_to_the_bit(*make_cpu_ops(2));
}

TEST(Fp8Training, QuantizesFourLayersOfEveryBlock) {
  const auto ops = make_cpu_ops(1);
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama, ModelFamily::kBert}) {
    TrainOptions options = fp8_test::options_of(plan::Precision::kFp8, family);
    Trainer fp8(options, *ops);
    EXPECT_EQ(fp8.replica().plan().scaled_tensors(), 2 * 4 * 3);  // x, weight and gradient of each
    options.precision = plan::Precision::kBf16;
    Trainer bf16(options, *ops);
    EXPECT_EQ(bf16.replica().plan().scaled_tensors(), 0);
  }
}

TEST(Fp8Training, IsRefusedOnACpu) {
  TrainOptions options = fp8_test::options_of(plan::Precision::kFp8, ModelFamily::kGpt2);
  options.device = "cpu";
  try {
    check_device(options);
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("FP8 needs a GPU of compute capability 8.9 or "
                                                   "later; use bf16"));
  }
}

}  // namespace
}  // namespace lockstep::train
