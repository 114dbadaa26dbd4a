// FP8 on several workers in plain loops; tests/train/cuda has the same on a GPU.
#include "tests/train/trainer/fp8_workers_cases.h"

namespace lockstep::train {
namespace {

TEST(Fp8Workers, ScaleAlikeAndKeepTheSameBits) { fp8_test::expect_workers_scale_alike({}); }

}  // namespace
}  // namespace lockstep::train
