#include "lockstep/train/observe/sample_file.h"

#include <gtest/gtest.h>

#include "lockstep/base/file/file.h"
#include "tests/train/run/observed_run.h"

namespace lockstep::train {
namespace {

class SampleFile : public ObservedRun {
 protected:
  std::string lines() const { return bytes_of(folder_ / "samples.jsonl"); }
};

TEST_F(SampleFile, IsMadeWithTheFirstSample) {
  const auto file = make_sample_file();
  file->begin(facts());
  file->step(record(1));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "samples.jsonl"));
  file->sample(1, "a \"b\"\n\xff");
  EXPECT_EQ(lines(), "{\"step\":1,\"text\":\"a \\\"b\\\"\\n\xEF\xBF\xBD\"}\n");
}

TEST_F(SampleFile, OfAResumedRunHasEachStepOnce) {
  write_file(folder_ / "samples.jsonl",
             "{\"step\":5,\"text\":\"five\"}\n{\"step\":10,\"text\":\"ten\"}\n{\"step\":15,\"te");
  const auto file = make_sample_file();
  file->begin(facts(10));
  file->sample(10, "ten again");
  const std::vector<Sample> samples = read_samples(folder_, 11);
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].text, "five");
  EXPECT_EQ(samples[1].step, 10);
  EXPECT_EQ(samples[1].text, "ten again");
  EXPECT_EQ(read_samples(folder_, 10).size(), 1U);
  EXPECT_TRUE(read_samples(folder_ / "none", 10).empty());
}

}  // namespace
}  // namespace lockstep::train
