// How much a validation takes of what is held back.
#include "lockstep/train/run/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/train/run/recorded_run.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

std::uint64_t validated(const std::vector<std::string>& settings) {
  RunSettings given;
  given.config.set("model.name=gpt2-124m");
  for (const std::string& one : settings) given.config.set(one);
  return validated_sequences(completed(given.options));
}

TEST(ValidatedSequences, CostATwentiethOfTheStepsBetweenUnlessTheyAreSet) {
  // 0.05 of the FLOPs of a step are 0.15 of its sequences.
  EXPECT_EQ(
      validated({"train.global_batch_size=12", "train.steps=2000", "train.validate_every=250"}),
      450u);
  EXPECT_EQ(
      validated({"train.global_batch_size=12", "train.steps=100", "train.validate_every=250"}),
      180u)
      << "there is one at the end of the run";
  EXPECT_EQ(validated({"train.global_batch_size=12", "train.steps=100", "train.validate_every=0"}),
            180u);
  EXPECT_EQ(validated({"train.global_batch_size=1", "train.steps=1", "train.seq_len=8"}), 1u);
  EXPECT_EQ(validated({"train.global_batch_size=12", "train.validate_batches=20"}), 240u);
  EXPECT_EQ(validated({"train.global_batch_size=12", "train.validate_batches=0"}),
            std::numeric_limits<std::uint64_t>::max());
}

using ValidationRun = RecordedRun;

TEST_F(ValidationRun, TakesTheSameSequencesInMicroBatchesOfAnySize) {
  std::map<std::int64_t, double> expected;
  for (const char* micro : {"1", "2", "4"}) {
    SCOPED_TRACE(micro);
    run(tiny(micro),
        {std::string("train.micro_batch_size=") + micro, "model.dropout=0",
         "train.validate_batches=-1", "train.validate_every=5"},
        &recorder);
    EXPECT_THAT(recorder->facts.data, HasSubstr("held back, a validation takes 3 of them"));
    if (expected.empty()) expected = recorder->validation;
    ASSERT_THAT(recorder->validation, ::testing::SizeIs(3));
    for (const auto& [step, loss] : expected) {
      EXPECT_NEAR(recorder->validation[step], loss, 1e-5) << step;
    }
  }
}

TEST_F(ValidationRun, OfAllThatIsHeldBackSaysSo) {
  run(tiny("all"), {"train.validate_batches=0", "train.steps=1"}, &recorder);
  EXPECT_THAT(recorder->facts.data, HasSubstr("held back, a validation takes all of them"));
  EXPECT_GT(recorder->validation_micro_batches, 10u);
  run(tiny("none"), {"data.validation_fraction=0", "train.steps=1"}, &recorder);
  EXPECT_THAT(recorder->facts.data, HasSubstr("none held back"));
  EXPECT_EQ(recorder->validation_micro_batches, 0u);
}

}  // namespace
}  // namespace lockstep::train
