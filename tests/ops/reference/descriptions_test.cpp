// The reference on the cases of all descriptions: it keeps to its tensors, gives the same bits
// again, and refuses what is wrong. That its values are right is said by closed_forms_test and
// gradient_test.
#include "tests/ops/expectations.h"

namespace lockstep::ops_test {
namespace {

class ReferenceOp : public ::testing::TestWithParam<OpDescription> {
 protected:
  const std::unique_ptr<Ops> ops_[1] = {make_reference_ops()};
};

TEST_P(ReferenceOp, KeepsToItsTensorsAndGivesTheSameBitsAgain) { expect_values(ops_, GetParam()); }

TEST_P(ReferenceOp, RefusesWhatIsWrongAndWritesNothing) { expect_refusals(*ops_[0], GetParam()); }

TEST(ReferenceLinearActivation, HasTheBitsOfLinearAndActivate) {
  expect_fused_bits(*make_reference_ops());
}

INSTANTIATE_TEST_SUITE_P(Described, ReferenceOp, ::testing::ValuesIn(bench::op_descriptions()),
                         test_name);

}  // namespace
}  // namespace lockstep::ops_test
