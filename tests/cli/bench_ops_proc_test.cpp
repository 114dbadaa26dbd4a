// lockstep bench ops as people call it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/shell.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::run_lockstep;

constexpr int kUsageError = 2;

TEST(BenchOps, SaysWhatItMeasures) {
  const auto outcome = run_lockstep("bench ops --help");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("lockstep bench ops --op adam --threads 2"));
}

TEST(BenchOps, RefusesWhatThereIsNotWithTheNearest) {
  auto outcome = run_lockstep("bench ops --op atention");
  EXPECT_EQ(outcome.exit_code, kUsageError);
  EXPECT_THAT(outcome.text, HasSubstr("unknown operation 'atention' (did you mean attention?)"));
  outcome = run_lockstep("bench ops --dtype f32,bf61");
  EXPECT_EQ(outcome.exit_code, kUsageError);
  EXPECT_THAT(outcome.text, HasSubstr("'bf61' (did you mean bf16?)"));
  outcome = run_lockstep("bench ops --op add --threads 0");
  EXPECT_EQ(outcome.exit_code, kUsageError);
  outcome = run_lockstep("bench ops --op add --json /nonexistent/out.json");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("/nonexistent/out.json"));
}

TEST(BenchOps, RefusesWhatAGpuOrACpuHasNot) {
  auto outcome = run_lockstep("bench ops --op add --peers");
  EXPECT_EQ(outcome.exit_code, kUsageError);
  EXPECT_THAT(outcome.text, HasSubstr("add --device cuda"));
  outcome = run_lockstep("bench ops --op add --device gpu");
  EXPECT_EQ(outcome.exit_code, kUsageError);
  outcome = run_lockstep("bench ops --op add --device cuda --threads 2");
  EXPECT_EQ(outcome.exit_code, kUsageError);
  EXPECT_THAT(outcome.text, HasSubstr("--threads has no meaning on a GPU"));
}

TEST(BenchOps, SaysWhyAGpuCannotBeUsed) {
  const auto outcome = run_lockstep("bench ops --op add --device cuda:63");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("cuda:63 is not available: "));
}

}  // namespace
}  // namespace lockstep
