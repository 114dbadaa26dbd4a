#include "lockstep/train/observe/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/train/observe/metrics_line.h"
#include "tests/train/run/observed_run.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInfiniteNorm = std::numeric_limits<double>::infinity();

TEST(MetricsLine, IsOneObjectWithTheNamesThatToolsKnow) {
  StepRecord record;
  record.metrics = {.step = 7,
                    .loss = 2.5,
                    .gradient_norm = 0.1,
                    .rate = 6e-4,
                    .loss_scale = 1024,
                    .tokens = 100,
                    .seconds = 0.5};
  record.memory_bytes = 123;
  EXPECT_EQ(metrics_line(record, false),
            "{\"step\":7,\"loss\":2.5,\"lr\":0.0006,\"grad_norm\":0.1,\"tokens\":100,"
            "\"tokens_per_s\":200.0,\"step_ms\":500.0,\"data_ms\":0.0,\"memory_bytes\":123,"
            "\"skipped\":false}\n");
  record.validation_loss = 3;
  record.checkpoint_seconds = 1;
  record.validation_seconds = 2;
  record.metrics.skipped = true;
  EXPECT_EQ(metrics_line(record, true),
            "{\"step\":7,\"loss\":2.5,\"val_loss\":3.0,\"lr\":0.0006,\"grad_norm\":0.1,"
            "\"tokens\":100,\"tokens_per_s\":200.0,\"step_ms\":500.0,\"data_ms\":0.0,"
            "\"checkpoint_ms\":1000.0,\"validation_ms\":2000.0,\"memory_bytes\":123,"
            "\"loss_scale\":1024.0,\"skipped\":true}\n");
}

TEST(MetricsLine, TellsWhatWentThroughFiles) {
  StepRecord record;
  record.metrics.step = 1;
  EXPECT_THAT(metrics_line(record, false), Not(HasSubstr("file")));
  EXPECT_THAT(metrics_line(record, false), HasSubstr("grad_norm"));
  record.metrics.has_norm = false;
  EXPECT_THAT(metrics_line(record, false), Not(HasSubstr("grad_norm")));
  record.metrics.has_norm = true;
  record.metrics.filed = {.read_bytes = 12, .written_bytes = 8, .waited_seconds = 0.25};
  const std::string line = metrics_line(record, false);
  EXPECT_THAT(line, HasSubstr(",\"file_read_bytes\":12,\"file_written_bytes\":8,"
                              "\"file_wait_ms\":250.0,"));
  const auto back = parse_metrics_line(line);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->metrics.filed.bytes(), 20u);
  EXPECT_EQ(back->metrics.filed.waited_seconds, 0.25);
}

TEST(MetricsLine, TellsWhereTheTimeOfSeveralWorkersWent) {
  StepRecord record;
  record.metrics.step = 1;
  record.workers = {.compute_seconds = 0.5,
                    .communication_seconds = 0.25,
                    .exposed_seconds = 0.125,
                    .longest_exposed_seconds = 0.375,
                    .bytes_sent = (std::uint64_t{1} << 53) + 1,
                    .slowest_rank = 3,
                    .slowest_seconds = 0.75};
  const std::string line = metrics_line(record, false);
  EXPECT_THAT(line, HasSubstr(",\"compute_ms\":500.0,\"communication_ms\":250.0,"
                              "\"exposed_ms\":125.0,\"exposed_max_ms\":375.0,"
                              "\"bytes_sent\":9007199254740993,"
                              "\"staleness\":0.0,\"staleness_max\":0.0,"
                              "\"slowest_rank\":3,\"slowest_ms\":750.0,"));
  record.workers->staleness = 1.5;
  record.workers->most_stale = 4;
  EXPECT_THAT(metrics_line(record, false), HasSubstr(",\"staleness\":1.5,\"staleness_max\":4.0,"));
  const auto back = parse_metrics_line(metrics_line(record, false));
  ASSERT_TRUE(back && back->workers);
  EXPECT_EQ(back->workers->compute_seconds, 0.5);
  EXPECT_EQ(back->workers->communication_seconds, 0.25);
  EXPECT_EQ(back->workers->exposed_seconds, 0.125);
  EXPECT_EQ(back->workers->longest_exposed_seconds, 0.375);
  EXPECT_EQ(back->workers->bytes_sent, record.workers->bytes_sent);
  EXPECT_EQ(back->workers->staleness, 1.5);
  EXPECT_EQ(back->workers->most_stale, 4);
  EXPECT_EQ(back->workers->slowest_rank, 3);
  EXPECT_EQ(back->workers->slowest_seconds, 0.75);
  record.workers->slowest_rank = -1;
  EXPECT_THAT(metrics_line(record, false), Not(HasSubstr("slowest")));
  EXPECT_EQ(parse_metrics_line(metrics_line(record, false))->workers->slowest_rank, -1);
  record.workers.reset();
  EXPECT_FALSE(parse_metrics_line(metrics_line(record, false))->workers);
}

TEST(MetricsLine, NumbersReadBackToTheSameBits) {
  for (const double value : {0.0, -0.0, 1.0 / 3, 0.1, 1e-310, 5e-324, 1.7976931348623157e308, 1e16,
                             123456789012345678.0, -2.0, std::nextafter(2.718281828, 3.0)}) {
    StepRecord record;
    record.metrics.step = 1;
    record.metrics.loss = value;
    const auto back = parse_metrics_line(metrics_line(record, false));
    ASSERT_TRUE(back) << value;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(back->metrics.loss), std::bit_cast<std::uint64_t>(value))
        << metrics_line(record, false);
  }
}

TEST(MetricsLine, WhatJsonCannotWriteIsNull) {
  StepRecord record;
  record.metrics = {
      .step = 1, .loss = std::nan(""), .gradient_norm = kInfiniteNorm, .skipped = true};
  record.validation_loss = -kInfiniteNorm;
  const std::string line = metrics_line(record, false);
  EXPECT_THAT(line, HasSubstr("\"loss\":null,\"val_loss\":null"));
  EXPECT_THAT(line, HasSubstr("\"grad_norm\":null"));
  const auto back = parse_metrics_line(line);
  ASSERT_TRUE(back);
  EXPECT_TRUE(std::isnan(back->metrics.loss));
  EXPECT_TRUE(std::isnan(back->validation_loss.value()));
  EXPECT_TRUE(back->metrics.skipped);
}

TEST(MetricsLine, TornOnesAndOthersTellNothing) {
  StepRecord record;
  record.metrics.step = 12;
  const std::string line = metrics_line(record, true);
  for (std::size_t cut = 0; cut + 1 < line.size(); ++cut) {
    EXPECT_FALSE(parse_metrics_line(line.substr(0, cut))) << cut;
  }
  for (const char* other : {"[]", "12", "{}", "{\"step\":0}", "{\"step\":\"1\"}", "{\"step\":1.5}",
                            "{\"step\":1}{\"step\":2}"}) {
    EXPECT_FALSE(parse_metrics_line(other)) << other;
  }
}

class MetricsFile : public ObservedRun {
 protected:
  // Steps first .. last, by a process that was killed and so never reached end().
  void run(std::int64_t first, std::int64_t last) {
    const auto observer = make_metrics_file();
    observer->begin(facts(first));
    for (std::int64_t step = first; step <= last; ++step) observer->step(record(step));
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> steps;
    read_metrics(folder_, [&](const StepRecord& one) { steps.push_back(one.metrics.step); });
    return steps;
  }
  std::string text() const { return bytes_of(metrics_path(folder_)); }
};

TEST_F(MetricsFile, AStepThatIsToldAgainStandsWhereItStood) {
  const auto observer = make_metrics_file();
  observer->begin(facts());
  for (const int step : {1, 2, 3}) observer->step(record(step));
  observer->end({});
  std::string expected = metrics_line(record(1), false) + metrics_line(record(2), false);
  observer->begin(facts(4));
  StepRecord again = record(3);
  again.validation_loss = 1.5;
  observer->step(again);
  observer->step(record(4));
  expected += metrics_line(again, false) + metrics_line(record(4), false);
  EXPECT_EQ(bytes_of(metrics_path(folder_)), expected);
}

// A leader that was killed before it wrote the line of a step that others have kept.
TEST_F(MetricsFile, AStepThatIsToldLateIsAppended) {
  run(1, 2);
  const auto observer = make_metrics_file();
  observer->begin(facts(4));
  observer->step(record(3));
  observer->step(record(4));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4}));
}

TEST_F(MetricsFile, HasALinePerStepAsSoonAsItIsDone) {
  const auto observer = make_metrics_file();
  observer->begin(facts());
  EXPECT_EQ(text(), "");
  observer->step(record(1));
  EXPECT_EQ(text(), metrics_line(record(1), false));
  observer->step(record(2));
  EXPECT_EQ(text(), metrics_line(record(1), false) + metrics_line(record(2), false));
}

TEST_F(MetricsFile, TheLossScaleStandsInF16Alone) {
  for (const char* precision : {"f16", "bf16"}) {
    const auto observer = make_metrics_file();
    RunFacts these = facts();
    these.precision = precision;
    observer->begin(these);
    observer->step(record(1));
    EXPECT_EQ(text().find("loss_scale") != std::string::npos, these.precision == "f16");
  }
}

TEST_F(MetricsFile, AResumedRunHasEveryStepOnce) {
  run(1, 5);
  run(4, 7);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  run(1, 2);  // from the start in the same folder
  EXPECT_THAT(steps(), ElementsAre(1, 2));
}

TEST_F(MetricsFile, ATornLastLineIsTakenOut) {
  run(1, 3);
  const std::string whole = text();
  const std::size_t third = whole.rfind('\n', whole.size() - 2) + 1;
  for (const std::size_t cut : {third + 1, third + 17, whole.size() - 2}) {
    write_file(metrics_path(folder_), whole.substr(0, cut));
    run(4, 4);
    EXPECT_THAT(steps(), ElementsAre(1, 2, 4));
    EXPECT_EQ(text(), whole.substr(0, third) + metrics_line(record(4), false));
  }
  // Nothing but its end is missing.
  write_file(metrics_path(folder_), whole.substr(0, whole.size() - 1));
  run(4, 4);
  EXPECT_EQ(text(), whole + metrics_line(record(4), false));
}

TEST_F(MetricsFile, AFolderThatIsNotThereIsAnErrorAtTheBeginning) {
  RunFacts these = facts();
  these.folder = folder_ / "absent";
  try {
    make_metrics_file()->begin(these);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
    EXPECT_THAT(error.what(), HasSubstr("metrics.jsonl"));
  }
}

TEST_F(MetricsFile, AFullDiskIsToldOnceAndTheRunGoesOn) {
  std::filesystem::create_symlink("/dev/full", metrics_path(folder_));
  const auto observer = make_metrics_file();
  observer->begin(facts());
  ::testing::internal::CaptureStderr();
  observer->step(record(1));
  observer->step(record(2));
  observer->end({});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("No space left"));
  EXPECT_THAT(said, HasSubstr("from step 1 on"));
  EXPECT_THAT(said, Not(HasSubstr("step 2")));
}

}  // namespace
}  // namespace lockstep::train
