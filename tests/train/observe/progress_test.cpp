#include "lockstep/train/observe/progress_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "tests/train/run/observed_run.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Progress usual() {
  return {.step = 120,
          .steps = 5000,
          .loss = 3.21426,
          .rate = 5.8e-4,
          .gradient_norm = 0.9312,
          .tokens_per_second = 12345.4,
          .flops_per_second = 48.2e9,
          .peak_flops = 67.9e9,
          .memory_bytes = 1299227607,
          .seconds_left = 754.2};
}

TEST(ProgressLine, TellsWhatIsKnown) {
  struct LineCase {
    void (*change)(Progress&);
    const char* line;
  };
  const LineCase cases[] = {
      {[](Progress&) {},
       "step   120/5,000  loss 3.2143  lr 5.80e-04  norm 0.931  12,345 tokens/s  "
       "48.2 GFLOP/s (71%)  1.21 GiB  12m 34s left"},
      {[](Progress& p) { p.validation_loss = 3.3; },
       "step   120/5,000  loss 3.2143  val 3.3000  lr 5.80e-04  norm 0.931  12,345 tokens/s  "
       "48.2 GFLOP/s (71%)  1.21 GiB  12m 34s left"},
      {[](Progress& p) { p.straggler = {.rank = 3, .times = 2.94}; },
       "step   120/5,000  loss 3.2143  rank 3 is 2.9x slower  lr 5.80e-04  norm 0.931  "
       "12,345 tokens/s  48.2 GFLOP/s (71%)  1.21 GiB  12m 34s left"},
      {[](Progress& p) { p.peak_flops = 0; },
       "step   120/5,000  loss 3.2143  lr 5.80e-04  norm 0.931  12,345 tokens/s  "
       "48.2 GFLOP/s  1.21 GiB  12m 34s left"},
      {[](Progress& p) { p.flops_per_second = 0; },
       "step   120/5,000  loss 3.2143  lr 5.80e-04  norm 0.931  12,345 tokens/s  1.21 GiB  "
       "12m 34s left"},
      {[](Progress& p) {
         p.skipped = true;
         p.loss = std::nan("");
         p.gradient_norm = std::numeric_limits<double>::infinity();
       },
       "step   120/5,000  loss nan  skipped  lr 5.80e-04  norm inf  12,345 tokens/s  "
       "48.2 GFLOP/s (71%)  1.21 GiB  12m 34s left"},
      {[](Progress& p) {
         p.step = 5000;
         p.gradient_norm = 123456;
         p.memory_bytes = 0;
       },
       "step 5,000/5,000  loss 3.2143  lr 5.80e-04  norm 1.23e+05  12,345 tokens/s  "
       "48.2 GFLOP/s (71%)"},
      {[](Progress& p) {
         p.tokens_per_second = std::numeric_limits<double>::infinity();  // a step of no time
         p.flops_per_second = std::numeric_limits<double>::infinity();
       },
       "step   120/5,000  loss 3.2143  lr 5.80e-04  norm 0.931  1.21 GiB  12m 34s left"},
  };
  for (const LineCase& one : cases) {
    Progress progress = usual();
    one.change(progress);
    EXPECT_EQ(progress_line(progress), one.line);
  }
}

TEST(ProgressLine, LosesTheLeastImportantWhereItIsTooLong) {
  struct LineCase {
    int columns;
    const char* line;
  };
  const LineCase cases[] = {
      {200,
       "step   120/5,000  loss 3.2143  lr 5.80e-04  norm 0.931  12,345 tokens/s  "
       "48.2 GFLOP/s (71%)  1.21 GiB  12m 34s left"},
      {110,
       "step   120/5,000  loss 3.2143  lr 5.80e-04  norm 0.931  12,345 tokens/s  "
       "48.2 GFLOP/s (71%)  12m 34s left"},
      {90, "step   120/5,000  loss 3.2143  lr 5.80e-04  norm 0.931  12,345 tokens/s  12m 34s left"},
      {79, "step   120/5,000  loss 3.2143  lr 5.80e-04  12,345 tokens/s  12m 34s left"},
      {60, "step   120/5,000  loss 3.2143  12,345 tokens/s  12m 34s left"},
      {59, "step   120/5,000  loss 3.2143  12m 34s left"},
      {30, "step   120/5,000  loss 3.2143"},
      {17, "step   120/5,000 "},
      {1, "s"},
      {0, ""},
      {-1, ""},
  };
  for (const LineCase& one : cases) EXPECT_EQ(progress_line(usual(), one.columns), one.line);
}

StepRecord took(std::int64_t step, double seconds) {
  StepRecord record;
  record.metrics = {.step = step, .tokens = 1000, .seconds = seconds};
  return record;
}

TEST(ProgressMeter, EvenStepsGiveTheirOwnRates) {
  RunFacts facts;
  facts.steps = 100;
  facts.step_flops = 3e9;
  ProgressMeter meter(facts);
  Progress progress;
  for (std::int64_t step = 1; step <= 40; ++step) progress = meter.add(took(step, 0.5));
  EXPECT_NEAR(progress.tokens_per_second, 2000, 1e-6);
  EXPECT_NEAR(progress.flops_per_second, 6e9, 1);
  EXPECT_NEAR(progress.seconds_left, 60 * 0.5, 1e-6);
}

TEST(ProgressMeter, OneSlowStepHardlyMovesTheRateAndFadesAway) {
  RunFacts facts;
  facts.steps = 100'000;
  ProgressMeter meter(facts);
  for (std::int64_t step = 1; step <= 100; ++step) meter.add(took(step, 0.1));
  const double disturbed = meter.add(took(101, 1)).tokens_per_second;
  EXPECT_LT(disturbed, 10'000);
  EXPECT_GT(disturbed, 8'000);  // 1,000 by itself
  for (std::int64_t step = 102; step <= 600; ++step) meter.add(took(step, 0.1));
  EXPECT_NEAR(meter.add(took(601, 0.1)).tokens_per_second, 10'000, 20);
}

TEST(ProgressMeter, WhatIsLeftCountsDataCheckpointsAndValidations) {
  RunFacts facts;
  facts.steps = 20;
  ProgressMeter meter(facts);
  Progress progress;
  for (std::int64_t step = 1; step <= 10; ++step) {
    StepRecord record = took(step, 0.5);
    record.data_seconds = 0.5;
    if (step == 5) record.checkpoint_seconds = 4;
    if (step == 5) record.validation_seconds = 6;
    progress = meter.add(record);
  }
  EXPECT_NEAR(progress.seconds_left, 10 * (1 + 1), 1e-9);
  EXPECT_NEAR(progress.tokens_per_second, 1000, 1e-9);
}

TEST(ProgressMeter, NamesAStragglerWhileThereIsOne) {
  RunFacts facts;
  facts.workers = 3;
  facts.work = {2, 1, 1};
  ProgressMeter meter(facts);
  const auto after = [&](int steps, double last) {
    Progress progress;
    for (int i = 0; i < steps; ++i) {
      StepRecord record = took(i + 1, 1);
      record.metrics.costs = {
          {.compute_seconds = 2}, {.compute_seconds = 1}, {.compute_seconds = last}};
      progress = meter.add(record);
    }
    return progress;
  };
  EXPECT_FALSE(after(30, 1).straggler) << "the first has twice the work";
  const Progress slow = after(20, 3);
  ASSERT_TRUE(slow.straggler);
  EXPECT_THAT(progress_line(slow), HasSubstr("  rank 2 is 3.0x slower  "));
  EXPECT_FALSE(after(20, 1).straggler);
}

TEST(ProgressMeter, TellsHowStaleGradientsAre) {
  ProgressMeter meter{RunFacts()};
  StepRecord record = took(1, 1);
  record.workers = {.staleness = 0, .most_stale = 0};
  EXPECT_THAT(progress_line(meter.add(record)), Not(HasSubstr("stale")));
  record.workers = {.staleness = 1.25, .most_stale = 4};
  EXPECT_THAT(progress_line(meter.add(record)), HasSubstr("  stale 1.2, 4.0 at most  "));
}

TEST(ProgressText, OpensAndCloses) {
  RunFacts facts;
  facts.folder = "runs/a";
  facts.model = "gpt2 of 4 x 128";
  facts.precision = "bf16";
  facts.hardware = "cpu, 2 threads";
  facts.data = "a.txt: 1,003 tokens";
  facts.parameters = 1'200'000;
  facts.steps = 5000;
  EXPECT_EQ(opening_text(facts),
            "gpt2 of 4 x 128, 1.2 million parameters in bf16\ncpu, 2 threads\n"
            "a.txt: 1,003 tokens\n5,000 steps, into runs/a\n");
  facts.workers = 4;
  facts.strategy = "ddp";
  EXPECT_THAT(opening_text(facts), HasSubstr("\ncpu, 2 threads\n4 workers, ddp\na.txt"));
  facts.peak_flops = 67.9e9;
  facts.first_step = 301;
  facts.memory_bytes = 1 << 30;
  EXPECT_THAT(opening_text(facts), HasSubstr("2 threads, matrix products at 67.9 GFLOP/s\n"));
  EXPECT_THAT(opening_text(facts), HasSubstr("\nsteps 301 to 5,000, resumed, 1 GiB of memory, "));
  facts.first_step = 5001;
  EXPECT_THAT(opening_text(facts), HasSubstr("\n5,000 steps are done, 1 GiB of memory, "));
  facts.batch = 1024;
  facts.micro_batch = 8;
  facts.step_tokens = 1048576;
  EXPECT_THAT(opening_text(facts),
              HasSubstr("\na step has 1,024 sequences in micro-batches of 8, 1,048,576 tokens\n"));

  using Reason = RunEnd::Reason;
  EXPECT_EQ(closing_text({Reason::kFinished, "", 3720}, usual()),
            "finished at step 120 of 5,000 after 1h 02m\n");
  EXPECT_EQ(closing_text({Reason::kInterrupted, "", 42}, usual()),
            "interrupted at step 120 of 5,000 after 42s\n");
  EXPECT_EQ(closing_text({Reason::kFailed, "disk\nfull\x1b[31m", 4.21}, std::nullopt),
            "failed before the first step after 4.2s\n");
  EXPECT_EQ(closing_text({Reason::kInterrupted, "", 4.21}, std::nullopt, 41, 150),
            "interrupted at step 41 of 150 after 4.2s\n");
  EXPECT_EQ(closing_text({Reason::kFinished, "", 0.3}, std::nullopt),
            "finished without a step after 0.3s\n");
  EXPECT_EQ(sample_text(1000, "To be,\n\nor \x07\xff not"),
            "sample after step 1,000:\n    To be,\n\n    or \xEF\xBF\xBD\xEF\xBF\xBD not\n");
}

// What a terminal of one row would show, and what has scrolled up: carriage returns go back, an
// erasure clears to the end.
std::vector<std::string> seen(const std::string& written) {
  std::vector<std::string> lines(1);
  std::size_t column = 0;
  for (std::size_t i = 0; i < written.size(); ++i) {
    std::string& line = lines.back();
    if (written[i] == '\r') {
      column = 0;
    } else if (written[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (written.compare(i, 3, "\x1b[K") == 0) {
      line.resize(column);
      i += 2;
    } else {
      line.resize(std::max(line.size(), column + 1));
      line[column++] = written[i];
    }
  }
  return lines;
}

class ProgressObserver : public ObservedRun {
 protected:
  std::string written(const ProgressOptions& options, std::int64_t steps = 20) {
    ::testing::internal::CaptureStderr();
    const auto observer = make_progress(options);
    observer->begin(facts());
    for (std::int64_t step = 1; step <= steps; ++step) {
      StepRecord one = record(step);
      if (step == validated_) one.validation_loss = 1.5;
      observer->step(one);
      if (step == 7) observer->sample(7, "a\x1b[2Jb");
      if (step == 7) observer->notice("saved");
      if (step == 8) observer->warning("careful");
    }
    observer->end({.seconds = 5});
    return ::testing::internal::GetCapturedStderr();
  }
  // The step of every line about one.
  static std::string steps_in(const std::vector<std::string>& lines) {
    std::string steps;
    for (const std::string& line : lines) {
      if (line.starts_with("step ")) steps += line.substr(4, 3);
    }
    return steps;
  }

  std::int64_t validated_ = 13;
};

TEST_F(ProgressObserver, WithoutATerminalWritesPlainLinesNowAndThen) {
  const std::string all = written({.every = 5});
  EXPECT_THAT(all, Not(HasSubstr("\r")));
  EXPECT_THAT(all, Not(HasSubstr("\x1b")));
  EXPECT_EQ(steps_in(seen(all)), "  1  5 10 13 15 20");
  EXPECT_THAT(all, HasSubstr("\nsample after step 7:\n    a\xEF\xBF\xBD[2Jb\nsaved\n"));
  EXPECT_THAT(all, HasSubstr("\nwarning: careful\n"));
  EXPECT_EQ(all.find("val 1.5000"), all.rfind("val "));  // once, where it was taken
  EXPECT_TRUE(all.ends_with("\nfinished at step 20 of 20 after 5.0s\n"));
  EXPECT_EQ(steps_in(seen(written({.every = 0}, 9))), "  1");
}

TEST_F(ProgressObserver, OnATerminalKeepsOneLineBelowAllThatIsTold) {
  const std::vector<std::string> lines = seen(written({.terminal = true, .columns = 60}));
  // Of the steps those stay that were validated, and the last.
  EXPECT_EQ(steps_in(lines), " 13 20");
  const std::vector<std::string> told = {"sample after step 7:", "    a\xEF\xBF\xBD[2Jb", "saved",
                                         "warning: careful"};
  const auto at = std::search(lines.begin(), lines.end(), told.begin(), told.end());
  EXPECT_NE(at, lines.end());
  EXPECT_EQ(lines.back(), "");
  EXPECT_EQ(lines[lines.size() - 2], "finished at step 20 of 20 after 5.0s");
  EXPECT_LT(lines[lines.size() - 3].size(), 60U);
}

TEST_F(ProgressObserver, ALastStepThatWasValidatedStandsOnATerminalOnce) {
  validated_ = 20;
  const std::vector<std::string> lines = seen(written({.terminal = true, .columns = 60}));
  EXPECT_EQ(steps_in(lines), " 20");
  EXPECT_EQ(lines[lines.size() - 2], "finished at step 20 of 20 after 5.0s");
}

TEST_F(ProgressObserver, ShowsHowFarAValidationIs) {
  ::testing::internal::CaptureStderr();
  const auto observer = make_progress({.terminal = true, .columns = 60});
  observer->begin(facts());
  observer->validating({.step = 1, .done = 0, .all = 400});  // before the step is reported
  auto lines = seen(::testing::internal::GetCapturedStderr());
  EXPECT_EQ(lines.back(), "step  1/20  validating 0%, 0 of 400 micro-batches");
  ::testing::internal::CaptureStderr();
  observer->step(record(1));
  observer->validating({.step = 2, .done = 0, .all = 400});
  observer->end({.seconds = 5});
  lines = seen(::testing::internal::GetCapturedStderr());
  EXPECT_EQ(lines[lines.size() - 2], "finished at step 1 of 20 after 5.0s");
  EXPECT_THAT(lines[lines.size() - 3], HasSubstr("step  1/20  loss"));
  EXPECT_EQ(validation_line({.step = 5, .done = 148, .all = 400}, 5000, 30),
            "step     5/5,000  validating 3");
}

TEST_F(ProgressObserver, WhatOthersWriteDoesNotHangOnTheLine) {
  ::testing::internal::CaptureStderr();
  const auto observer = make_progress({.terminal = true, .columns = 30});
  observer->begin(facts());
  observer->step(record(1));
  std::fputs("somebody else's message, longer than the line\n", stderr);
  observer->notice("saved");
  const auto lines = seen(::testing::internal::GetCapturedStderr());
  EXPECT_THAT(lines, ::testing::Contains("somebody else's message, longer than the line"));
  EXPECT_EQ(lines[lines.size() - 2], "saved");
  EXPECT_THAT(lines.back(), HasSubstr("step  1/20"));
}

}  // namespace
}  // namespace lockstep::train
