// Which checkpoints checkpoint.keep_best keeps, and when train.early_stopping ends a run: compared
// with plain loops over the validation losses that runs reported.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/file/file.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/run/early_stopping.h"
#include "tests/train/run/recorded_run.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Losses = std::map<std::int64_t, double>;

// Its loss rises and falls.
const std::vector<std::string> kUneven = {"train.steps=24",          "train.validate_every=2",
                                          "checkpoint.every=5",      "optimizer.learning_rate=0.2",
                                          "schedule.decay=constant", "optimizer.max_grad_norm=0"};

std::vector<std::string> uneven(std::vector<std::string> more) {
  more.insert(more.begin(), kUneven.begin(), kUneven.end());
  return more;
}

// Lowest first, of equal losses the earlier.
std::vector<std::int64_t> best_of(const Losses& losses, std::size_t count) {
  std::vector<std::pair<double, std::int64_t>> sorted;
  for (const auto& [step, loss] : losses) sorted.emplace_back(loss, step);
  std::ranges::sort(sorted);
  std::vector<std::int64_t> steps;
  for (std::size_t i = 0; i < std::min(count, sorted.size()); ++i) {
    steps.push_back(sorted[i].second);
  }
  return steps;
}

// After which step a run with these validations ends; nothing: it does all of its steps.
std::optional<std::int64_t> early_end(const Losses& losses, int patience, double delta = 0) {
  double best = losses.begin()->second;
  int without = 0;
  for (const auto& [step, loss] : losses) {
    without = loss < best - delta || step == losses.begin()->first ? 0 : without + 1;
    if (without == 0) best = loss;
    if (without == patience) return step;
  }
  return std::nullopt;
}

class BestCheckpoints : public RecordedRun {
 protected:
  std::vector<std::int64_t> kept(const char* dir) const {
    auto steps = CheckpointFolder(folder / dir).steps();
    std::ranges::reverse(steps);
    return steps;
  }
  // The best, the newest, and those of keep_every.
  static std::vector<std::int64_t> expected(const Losses& losses, std::size_t best, int last) {
    std::set<std::int64_t> steps{last};
    for (const std::int64_t step : best_of(losses, best)) steps.insert(step);
    return {steps.begin(), steps.end()};
  }
  void expect_losses_in_manifests(const char* dir, const Losses& losses) const {
    for (const auto& one : CheckpointFolder(folder / dir).by_validation()) {
      ASSERT_TRUE(losses.contains(one.step)) << one.step;
      EXPECT_EQ(one.loss, losses.at(one.step)) << one.step;
    }
  }
};

TEST_F(BestCheckpoints, StayBesideTheNewest) {
  run(tiny("all"), uneven({"checkpoint.keep_last=99", "checkpoint.keep_best=99"}), &recorder);
  const Losses losses = recorder->validation;
  ASSERT_EQ(losses.size(), 12u);
  ASSERT_NE(best_of(losses, 1).front(), 24) << "the loss must rise in the end";
  ASSERT_NE(best_of(losses, 1).front(), 2);
  for (const char* how : {"checkpoint.async_save=true", "checkpoint.async_save=false"}) {
    for (const std::size_t count : {1u, 3u}) {
      const std::string dir = fmt::format("best{}{}", count, how == kUneven.front());
      std::filesystem::remove_all(folder / dir);
      run(tiny(dir.c_str()),
          uneven({"checkpoint.keep_last=1", fmt::format("checkpoint.keep_best={}", count), how}),
          &recorder);
      EXPECT_EQ(recorder->validation, losses) << "saving changes nothing";
      EXPECT_THAT(kept(dir.c_str()), ElementsAreArray(expected(losses, count, 24)));
      expect_losses_in_manifests(dir.c_str(), losses);
      EXPECT_EQ(choose_checkpoint(folder / dir, "best"),
                CheckpointFolder(folder / dir).path(best_of(losses, 1).front()));
    }
  }
  run(tiny("every"),
      uneven({"checkpoint.keep_last=1", "checkpoint.keep_best=1", "checkpoint.keep_every=10"}),
      &recorder);
  std::set<std::int64_t> steps{10, 20, 24, best_of(losses, 1).front()};
  EXPECT_THAT(kept("every"), ElementsAreArray(steps));
}

TEST_F(BestCheckpoints, OfARunThatWasInterruptedAreThoseOfOneThatWasNot) {
  run(tiny("whole"), uneven({"checkpoint.keep_last=1", "checkpoint.keep_best=2"}), &recorder);
  const Losses losses = recorder->validation;
  // After each step in turn.
  for (std::int64_t stop = 1; stop < 24; stop += 3) {
    SCOPED_TRACE(stop);
    std::filesystem::remove_all(folder / "parts");
    const auto settings = uneven({"checkpoint.keep_last=1", "checkpoint.keep_best=2"});
    EXPECT_EQ(run(tiny("parts"), settings, &recorder,
                  [&](std::int64_t step) {
                    if (step == stop) ::raise(SIGTERM);
                  }),
              RunOutcome::kInterrupted);
    EXPECT_EQ(run(tiny("parts"), settings, &recorder), RunOutcome::kFinished);
    EXPECT_EQ(kept("parts"), kept("whole"));
    expect_losses_in_manifests("parts", losses);
  }
}

// A crash may come between the new checkpoint and the removal of each old one.
TEST_F(BestCheckpoints, SurviveACrashAtAnyMomentOfARotation) {
  run(tiny("all"), uneven({"checkpoint.keep_last=99", "checkpoint.keep_best=99"}), &recorder);
  const Losses losses = recorder->validation;
  const CheckpointOptions keep{.keep_last = 1, .keep_best = 2};
  const std::vector<std::int64_t> goal = expected(losses, 2, 24);
  std::vector<std::int64_t> others;
  for (const std::int64_t step : kept("all")) {
    if (std::ranges::find(goal, step) == goal.end()) others.push_back(step);
  }
  ASSERT_GT(others.size(), 5u);
  for (std::size_t removed = 0; removed <= others.size(); ++removed) {
    std::filesystem::remove_all(folder / "crashed");
    std::filesystem::copy(folder / "all", folder / "crashed",
                          std::filesystem::copy_options::recursive);
    const CheckpointFolder crashed(folder / "crashed");
    for (std::size_t i = 0; i < removed; ++i) {
      std::filesystem::remove_all(crashed.path(others[others.size() - 1 - i]));
    }
    EXPECT_EQ(crashed.by_validation().front().step, best_of(losses, 1).front());
    crashed.remove_old(24, keep);
    EXPECT_THAT(kept("crashed"), ElementsAreArray(goal)) << removed;
  }
}

TEST_F(BestCheckpoints, AreFoundByARunThatIsResumedWithTheKey) {
  run(tiny("run"), uneven({"train.steps=12", "checkpoint.keep_last=9", "checkpoint.every=2"}),
      &recorder);
  Losses losses = recorder->validation;
  run(tiny("run"), uneven({"checkpoint.keep_last=1", "checkpoint.keep_best=2"}), &recorder);
  for (const auto& [step, loss] : recorder->validation) losses[step] = loss;
  EXPECT_THAT(kept("run"), ElementsAreArray(expected(losses, 2, 24)));
}

TEST_F(BestCheckpoints, AreNotReplacedByOneWhoseLossIsNaN) {
  const std::vector<std::string> one = {"checkpoint.keep_last=1", "checkpoint.keep_best=1"};
  run(tiny("run"), uneven({one[0], one[1], "train.steps=6"}), &recorder);
  const std::int64_t best = best_of(recorder->validation, 1).front();
  const std::string error = error_of([&] {
    run(tiny("run"), uneven({one[0], one[1], "optimizer.learning_rate=1e30"}), &recorder);
  });
  EXPECT_THAT(error, HasSubstr("loss"));
  EXPECT_EQ(choose_checkpoint(folder / "run", "best"), CheckpointFolder(folder / "run").path(best));
  CheckpointFolder checkpoints(folder / "run");
  EXPECT_EQ(open_checkpoint(checkpoints.path(best), {}).state.steps, best);
}

TEST_F(BestCheckpoints, WithoutValidationsAreReportedAsAnUnusedSetting) {
  run(tiny("run"), {"data.validation_fraction=0", "checkpoint.keep_best=1", "train.steps=1"},
      &recorder);
  EXPECT_THAT(recorder->warnings,
              ::testing::Contains(HasSubstr("checkpoint.keep_best = 1 has no effect")));
}

TEST(EarlyStop, CountsValidationsWithoutALowerLoss) {
  EarlyStopping early(2, 0.1);
  early.add(1, 3.0);
  early.add(2, 2.95);
  EXPECT_FALSE(early.stops());
  early.add(3, 2.5);
  early.add(4, 2.45);
  EXPECT_FALSE(early.stops());
  early.add(5, 2.41);
  EXPECT_TRUE(early.stops());
  EXPECT_EQ(early.why(),
            "the validation loss has not improved on 2.5000, of step 3, by more than 0.1 in 2 "
            "validations");
  EarlyStopping never(0, 0);
  for (int step = 1; step < 100; ++step) never.add(step, 1);
  EXPECT_FALSE(never.stops());
}

class EarlyStops : public BestCheckpoints {};

TEST_F(EarlyStops, WhereThePatienceEndsAndSaysWhy) {
  run(tiny("whole"), uneven({}), &recorder);
  const Losses losses = recorder->validation;
  for (const int patience : {1, 2, 3}) {
    for (const double delta : {0.0, 0.05}) {
      SCOPED_TRACE(fmt::format("{} {}", patience, delta));
      const std::string dir = fmt::format("early{}{}", patience, delta > 0);
      EXPECT_EQ(run(tiny(dir.c_str()),
                    uneven({fmt::format("train.early_stopping={}", patience),
                            fmt::format("train.early_stopping_delta={}", delta)}),
                    &recorder),
                RunOutcome::kFinished);
      const auto end = early_end(losses, patience, delta);
      EXPECT_EQ(recorder->losses.rbegin()->first, end.value_or(24));
      EXPECT_EQ(kept(dir.c_str()).back(), end.value_or(24));
      EXPECT_EQ(recorder->ends.back().reason, RunEnd::Reason::kFinished);
      if (patience == 1) {
        ASSERT_TRUE(end && *end < 24) << "the loss must rise in between";
      }
      if (end && *end < 24) {
        EXPECT_THAT(
            recorder->notices,
            ::testing::Contains(HasSubstr(fmt::format("stopped early after step {}", *end))));
        // The same command again has nothing to do.
        run(tiny(dir.c_str()),
            uneven({fmt::format("train.early_stopping={}", patience),
                    fmt::format("train.early_stopping_delta={}", delta)}),
            &recorder);
        EXPECT_THAT(recorder->losses, IsEmpty());
        EXPECT_THAT(recorder->notices, ::testing::Contains(HasSubstr("stopped early")));
      }
    }
  }
  // With more patience it continues as if it had never stopped.
  run(tiny("early10"), uneven({"train.early_stopping=99"}), &recorder);
  EXPECT_EQ(recorder->losses.rbegin()->first, 24);
  EXPECT_EQ(recorder->validation.rbegin()->second, losses.rbegin()->second);
}

TEST_F(EarlyStops, AtTheSameStepHoweverOftenItIsResumed) {
  run(tiny("whole"), uneven({"train.early_stopping=2", "checkpoint.every=1"}), &recorder);
  const std::int64_t end = recorder->losses.rbegin()->first;
  ASSERT_LT(end, 24);
  const Losses losses = recorder->validation;
  Losses found;
  int starts = 0;
  while (run(tiny("parts"), uneven({"train.early_stopping=2", "checkpoint.every=1"}), &recorder,
             [&](std::int64_t) { ::raise(SIGTERM); }) == RunOutcome::kInterrupted) {
    for (const auto& [step, loss] : recorder->validation) found[step] = loss;
    ASSERT_LT(++starts, 50);
  }
  for (const auto& [step, loss] : recorder->validation) found[step] = loss;
  EXPECT_GT(starts, 3);
  EXPECT_EQ(found, losses);
  EXPECT_EQ(states("parts", fmt::format("step-{:08}", end).c_str()),
            states("whole", fmt::format("step-{:08}", end).c_str()));
}

class StopsOfWorkers : public ThreadRuns {};

TEST_F(StopsOfWorkers, AreAtTheSameStepAndKeepTheSameCheckpoints) {
  const std::vector<std::string> settings = {
      "parallel.reduction=tree",     "train.validate_every=2",  "train.early_stopping=2",
      "checkpoint.keep_best=2",      "checkpoint.keep_last=1",  "checkpoint.every=5",
      "optimizer.learning_rate=0.2", "schedule.decay=constant", "train.seed=3"};
  std::optional<std::vector<std::int64_t>> kept;
  std::optional<Curve> expected;
  for (const auto& [ranks, zero] :
       std::vector<std::pair<int, int>>{{1, 0}, {2, 0}, {4, 1}, {2, 3}}) {
    SCOPED_TRACE(fmt::format("{} ranks, zero {}", ranks, zero));
    const std::string dir = fmt::format("run{}{}", ranks, zero);
    Settings all = small_run(dir, 40, settings);
    if (ranks > 1) all.push_back(fmt::format("parallel.zero={}", zero));
    run_ranks(ranks, all);
    if (!kept) kept = CheckpointFolder(folder / dir).steps();
    if (!expected) expected = curve(dir);
    EXPECT_LT(expected->losses.size(), 40u) << "it must stop early";
    EXPECT_EQ(CheckpointFolder(folder / dir).steps(), *kept);
    EXPECT_EQ(curve(dir).losses, expected->losses);
  }
}

}  // namespace
}  // namespace lockstep::train
