// The search for settings that fit, against every setting there is.
#include "lockstep/train/memory/smaller_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::train::smaller_run_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TrainOptions of_workers(int workers) {
  TrainOptions options;
  options.model.layers = 3;
  // Large enough for files to save more than their staging takes.
  options.model.hidden = 384;
  options.model.heads = 3;
  options.model.vocabulary = 1211;
  options.batch = {.sequence = 37, .sequences = 6 * workers, .micro = 6, .workers = workers};
  options.parallel.reduction = parallel::Reduction::kFast;
  return options;
}

bool is_refused(const TrainOptions& options) {
  try {
    check(options);
  } catch (const Error&) {
    return true;
  }
  return false;
}

struct Tried {
  TrainOptions options;
  std::size_t bytes = 0;
  std::size_t device_bytes = 0;
};

// Every tier of every part, stage, recomputation, micro-batch and type of gradients.
std::vector<Tried> all_settings(const TrainOptions& options, const Ops& ops) {
  constexpr std::array kTiers{Tier::kDevice, Tier::kHost, Tier::kFile};
  std::vector<Tried> all;
  for (int number = 0; number < 81; ++number) {
    TrainOptions tried = options;
    nn::Tiers& tiers = tried.offload.tiers;
    tiers.optimizer = kTiers[static_cast<std::size_t>(number % 3)];
    tiers.gradients = kTiers[static_cast<std::size_t>(number / 3 % 3)];
    tiers.parameters = kTiers[static_cast<std::size_t>(number / 9 % 3)];
    tiers.activations = kTiers[static_cast<std::size_t>(number / 27)];
    for (int zero = 0; zero < (options.batch.workers > 1 ? 4 : 1); ++zero) {
      tried.parallel.zero = zero;
      for (const auto recompute :
           {RecomputeChoice::kNone, RecomputeChoice::kSelective, RecomputeChoice::kFull}) {
        tried.recompute = recompute;
        for (int micro = options.batch.micro; micro > 0; --micro) {
          if (options.batch.sequences % micro != 0) continue;
          tried.batch.micro = micro;
          for (const auto gradients : {GradientChoice::kAuto, GradientChoice::kCompute}) {
            tried.gradient_dtype = gradients;
            if (is_refused(tried)) continue;
            const nn::MemoryPlan plan = plan_run(tried, ops);
            all.push_back({tried, plan.bytes(), plan.bytes(Tier::kDevice)});
          }
        }
      }
    }
  }
  return all;
}

class SmallerRuns : public ::testing::TestWithParam<int> {
 protected:
  const std::unique_ptr<Ops> ops_ = make_reference_ops();
};

std::size_t over(std::size_t bytes, std::size_t limit) {
  return limit == 0 || bytes <= limit ? 0 : bytes - limit;
}

TEST_P(SmallerRuns, WhatIsNearestFitsIfAnythingDoesAndElseNothingComesCloser) {
  const TrainOptions options = of_workers(GetParam());
  const std::vector<Tried> all = all_settings(options, *ops_);
  const std::size_t whole = plan_run(options, *ops_).bytes();
  const auto least = std::ranges::min(all, {}, &Tried::bytes).bytes;
  const auto least_on_device = std::ranges::min(all, {}, &Tried::device_bytes).device_bytes;
  struct Limits {
    std::size_t all = 0;
    std::size_t device = 0;
  };
  std::vector<Limits> limits{{least, 0},
                             {least - 1, 0},
                             {1, 0},
                             {0, least_on_device},
                             {0, least_on_device - 1},
                             {0, 1},
                             {least, least_on_device},
                             {whole, least_on_device},
                             {least, whole},
                             {1, 1}};
  for (const std::size_t percent : {90, 60, 40, 25}) {
    limits.push_back({whole * percent / 100, 0});
    limits.push_back({0, whole * percent / 100});
    limits.push_back({whole * percent / 100, whole * percent / 200});
  }
  for (const Limits& limit : limits) {
    SCOPED_TRACE(::testing::Message() << "limits " << limit.all << ", " << limit.device);
    const auto excess = [&](std::size_t bytes, std::size_t device) {
      return over(bytes, limit.all) + over(device, limit.device);
    };
    std::size_t smallest = whole * 2;
    for (const Tried& each : all) {
      smallest = std::min(smallest, excess(each.bytes, each.device_bytes));
    }
    TrainOptions limited = options;
    limited.device_limit = limit.device;
    const SmallerRun run = nearest_run(limited, *ops_, limit.all);
    EXPECT_EQ(run.fits, smallest == 0);
    EXPECT_EQ(excess(run.bytes, run.device_bytes), smallest);
    const TrainOptions changed = with(limited, run);
    EXPECT_FALSE(is_refused(changed));
    EXPECT_EQ(plan_run(changed, *ops_).bytes(), run.bytes);
    EXPECT_EQ(plan_run(changed, *ops_).bytes(Tier::kDevice), run.device_bytes);
    EXPECT_EQ(solved(changed.batch).sequences, options.batch.sequences);
  }
}

// Of one micro-batch after the other: the search skips those that its bounds exclude.
TEST_P(SmallerRuns, TheLargestMicroBatchIsKeptThatFitsWithAnyTiers) {
  const TrainOptions options = of_workers(GetParam());
  const std::vector<Tried> all = all_settings(options, *ops_);
  const std::size_t whole = plan_run(options, *ops_).bytes();
  for (std::size_t limit = whole - 1; limit > whole / 5; limit = limit * 4 / 5) {
    const SmallerRun run = nearest_run(options, *ops_, limit);
    if (!run.fits) continue;
    int largest = 0;
    bool fits_without_files = false;
    for (const Tried& each : all) {
      if (each.bytes > limit || each.options.gradient_dtype != run.gradient_dtype) continue;
      const bool files = each.options.offload.tiers.has_files();
      fits_without_files |= !files;
      if (files == run.tiers.has_files()) largest = std::max(largest, each.options.batch.micro);
    }
    EXPECT_EQ(run.batch.micro, largest) << limit;
    if (run.tiers.has_files()) {
      EXPECT_FALSE(fits_without_files) << limit;
    }
  }
}

TEST_P(SmallerRuns, ATreesSumsAreCounted) {
  TrainOptions options = of_workers(GetParam());
  options.parallel.reduction = parallel::Reduction::kTree;
  const auto least = std::ranges::min(all_settings(options, *ops_), {}, &Tried::bytes).bytes;
  EXPECT_TRUE(nearest_run(options, *ops_, least).fits);
  const SmallerRun run = nearest_run(options, *ops_, least - 1);
  EXPECT_FALSE(run.fits);
  EXPECT_EQ(run.bytes, least);
}

// Block by block there is more to choose from than the brute force tries.
TEST_P(SmallerRuns, OpenRecomputationFitsWhereverOneForAllBlocksDoes) {
  TrainOptions options = of_workers(GetParam());
  options.recompute = RecomputeChoice::kAuto;
  const auto least = std::ranges::min(all_settings(options, *ops_), {}, &Tried::bytes).bytes;
  EXPECT_TRUE(nearest_run(options, *ops_, least).fits);
  EXPECT_LE(nearest_run(options, *ops_, 1).bytes, least);
}

TEST_P(SmallerRuns, AutoFindsWhatFitsAndKeepsWhatIsSet) {
  const TrainOptions options = of_workers(GetParam());
  const std::vector<Tried> all = all_settings(options, *ops_);
  const auto least_with = [&](auto allows) {
    std::size_t least = static_cast<std::size_t>(-1);
    for (const Tried& each : all) {
      if (each.options.gradient_dtype == options.gradient_dtype && allows(each.options)) {
        least = std::min(least, each.bytes);
      }
    }
    return least;
  };
  const std::size_t any = least_with([](const TrainOptions&) { return true; });
  const MemoryChoice choice = choose_memory(options, {}, *ops_, any);
  EXPECT_TRUE(choice.fits);
  EXPECT_LE(choice.bytes, any);
  EXPECT_EQ(choice.options.gradient_dtype, options.gradient_dtype);
  const std::size_t in_memory =
      least_with([](const TrainOptions& tried) { return !tried.offload.tiers.has_files(); });
  ASSERT_GT(in_memory, any);
  EXPECT_FALSE(choose_memory(options, {}, *ops_, in_memory).options.offload.tiers.has_files())
      << "files are for what fits nowhere else";
  const MemoryChoice set = choose_memory(options, {.tiers = false}, *ops_, any);
  EXPECT_FALSE(set.fits);
  EXPECT_FALSE(set.options.offload.tiers.any());
  EXPECT_LE(set.bytes, in_memory);
  EXPECT_THAT(text(set, any), HasSubstr("no setting that may be chosen comes closer"));
}

// Brute force takes minutes under a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
INSTANTIATE_TEST_SUITE_P(Workers, SmallerRuns, ::testing::Values(1));
#else
INSTANTIATE_TEST_SUITE_P(Workers, SmallerRuns, ::testing::Values(1, 2, 3, 4));
#endif

TEST(SmallerRun, FilesAreAdvisedWhereMemoryHasALimit) {
  const auto ops = make_reference_ops();
  TrainOptions options;
  options.model.name = "gpt2-124m";
  options.batch = {.sequence = 128, .micro = 1};
  options.memory_limit = std::size_t{1} << 30;
  const auto refusal = [&] {
    try {
      check_limit(options, plan_run(options, *ops), *ops);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(), HasSubstr("that fits is offload.optimizer = \"file\", which takes"));
  options.memory_limit = 1 << 20;
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("; the least is"),
                    HasSubstr("offload.optimizer = \"file\", offload.gradients = \"file\", "
                              "offload.parameters = \"file\", offload.activations = \"file\"")));
  options.device_limit = 1 << 20;
  EXPECT_THAT(refusal(), HasSubstr("; the closest is"));
}

TEST(SmallerRun, PartsThatWereMovedForNothingComeBack) {
  const auto ops = make_reference_ops();
  TrainOptions options = of_workers(1);
  options.memory_limit = plan_run(options, *ops).bytes();
  options.offload.tiers.activations = Tier::kHost;
  ASSERT_GT(plan_run(options, *ops).bytes(), options.memory_limit);
  const SmallerRun run = nearest_run(options, *ops, options.memory_limit);
  EXPECT_EQ(run.tiers, nn::Tiers());
  EXPECT_EQ(run.recompute, options.recompute);
}

TEST(SmallerRun, TriesEveryMicroBatchThatDividesTheStep) {
  for (int sequences = 1; sequences <= 72; ++sequences) {
    for (int micro = 1; micro <= sequences; ++micro) {
      if (sequences % micro != 0) continue;
      std::vector<int> expected;
      for (int each = micro; each > 0; --each) {
        if (sequences % each == 0) expected.push_back(each);
      }
      std::vector<int> tried;
      for (const BatchChoice& one : micro_batches({.sequences = sequences, .micro = micro})) {
        tried.push_back(one.micro);
        EXPECT_EQ(one.accumulation, sequences / one.micro);
      }
      EXPECT_EQ(tried, expected) << sequences << " in " << micro;
    }
  }
}

}  // namespace
}  // namespace lockstep::train::smaller_run_test
