// The CPU's operations against the reference, case by case of their descriptions, with one, two and
// three threads.
#include "tests/ops/expectations.h"

namespace lockstep::ops_test {
namespace {

std::span<const std::unique_ptr<Ops>> implementations() {
  static const std::unique_ptr<Ops> kAll[] = {make_cpu_ops(1), make_cpu_ops(2), make_cpu_ops(3)};
  return kAll;
}

TEST_P(OpTest, MatchesTheReferenceAndGivesTheSameBitsAgain) {
  expect_values(implementations(), GetParam());
}

TEST_P(OpTest, RefusesWhatIsWrongAndWritesNothing) {
  expect_refusals(*implementations()[1], GetParam());
}

TEST(LinearActivation, HasTheBitsOfLinearAndActivate) {
  for (const auto& ops : implementations()) expect_fused_bits(*ops);
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpTest, ::testing::ValuesIn(bench::op_descriptions()), test_name);

}  // namespace
}  // namespace lockstep::ops_test
