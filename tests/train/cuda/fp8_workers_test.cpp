// FP8 on several workers that share a GPU.
#include "tests/train/trainer/fp8_workers_cases.h"

#include "tests/tensor/cuda/gpu.h"

namespace lockstep::train {
namespace {

class CudaFp8Workers : public lockstep::testing::OnGpu<::testing::Test> {};

TEST_F(CudaFp8Workers, ScaleAlikeAndKeepTheSameBits) {
  if (cuda_devices().at(0).capability < kLeastFloat8Capability) {
    GTEST_SKIP() << "SKIPPED: FP8 needs compute capability 8.9";
  }
  fp8_test::expect_workers_scale_alike(lockstep::testing::kGpu);
}

}  // namespace
}  // namespace lockstep::train
