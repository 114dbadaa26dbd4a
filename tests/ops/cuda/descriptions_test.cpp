// The GPU's operations against the reference, case by case of their descriptions.
#include "tests/ops/cuda/gpu_ops.h"

namespace lockstep::ops_test {
namespace {

class CudaOp : public OnLiveGpu<::testing::TestWithParam<OpDescription>> {};

TEST_P(CudaOp, MatchesTheReferenceAndGivesTheSameBitsAgain) {
  const auto reference = make_reference_ops();
  Problems problems;
  for (const DType dtype : kComputeTypes) {
    for (const OpCase& one : GetParam().cases(dtype)) {
      const bool goes_on = check_case(problems, GetParam().name, dtype, one, *reference,
                                      {Places::kOdd, Places::kEven});
      if (!goes_on) return;
    }
  }
}

TEST_P(CudaOp, RefusesWhatIsWrongAndWritesNothing) { expect_refusals(gpu_ops(), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Described, CudaOp, ::testing::ValuesIn(bench::op_descriptions()),
                         test_name);

class CudaLinearActivation : public OnLiveGpu<::testing::Test> {};

TEST_F(CudaLinearActivation, HasTheBitsOfLinearAndActivate) { expect_fused_bits(gpu_ops()); }

}  // namespace
}  // namespace lockstep::ops_test
