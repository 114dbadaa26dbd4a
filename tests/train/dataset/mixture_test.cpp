// Mixtures of token files: their order against plain counts, and their sequences against those of
// each file alone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/token_file/writer.h"
#include "lockstep/nn/parameters/seed.h"
#include "lockstep/train/dataset/fingerprint.h"
#include "lockstep/train/dataset/mixture_order.h"
#include "lockstep/train/evaluate/evaluate.h"
#include "tests/train/run/recorded_run.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

TEST(MixtureQuotas, AreTheWeightsAsNearAsWholeNumbersAre) {
  for (const std::vector<double>& weights :
       std::vector<std::vector<double>>{{1},
                                        {1, 1},
                                        {0.7, 0.3},
                                        {1, 2, 4, 8, 16},
                                        {3, 1e-9, 5},
                                        {1e-12, 1e-12, 1},
                                        std::vector<double>(1000, 0.1)}) {
    const std::vector<std::uint64_t> quotas = mixture_quotas(weights);
    ASSERT_EQ(quotas.size(), weights.size());
    EXPECT_EQ(std::accumulate(quotas.begin(), quotas.end(), std::uint64_t{0}), kMixtureBlock);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_GE(quotas[i], 1u);
      const double exact = weights[i] / sum * static_cast<double>(kMixtureBlock);
      // Files of almost no weight have one sequence in a block.
      EXPECT_NEAR(static_cast<double>(quotas[i]), exact, 2.0);
    }
  }
  EXPECT_THROW(mixture_quotas(std::vector<double>{1, 0}), Error);
  EXPECT_THROW(mixture_quotas(std::vector<double>{}), Error);
  EXPECT_THROW(mixture_quotas(std::vector<double>{1, NAN}), Error);
}

TEST(MixtureOrder, HasEverySequenceOfAFileOnceAndInItsOrder) {
  const std::vector<std::uint64_t> quotas = mixture_quotas(std::vector<double>{5, 1, 2});
  MixtureOrder order(quotas, 7);
  MixtureOrder again(quotas, 7);
  MixtureOrder other(quotas, 8);
  std::vector<std::uint64_t> next(3);
  std::size_t differ = 0;
  for (std::uint64_t i = 0; i < 3 * kMixtureBlock; ++i) {
    const MixtureOrder::Place place = order.place(i);
    EXPECT_EQ(place.number, next[place.file]++) << i;
    differ += other.place(i).file != place.file;
    if ((i + 1) % kMixtureBlock == 0) {
      for (std::size_t file = 0; file < 3; ++file) {
        EXPECT_EQ(next[file], quotas[file] * (i + 1) / kMixtureBlock);
      }
    }
  }
  EXPECT_GT(differ, kMixtureBlock);
  // In any order of questions.
  for (std::uint64_t i = 3 * kMixtureBlock; i-- > 0; i -= std::min<std::uint64_t>(i, 977)) {
    const MixtureOrder::Place there = again.place(i);
    const MixtureOrder::Place here = order.place(i);
    EXPECT_EQ(there.file, here.file);
    EXPECT_EQ(there.number, here.number);
  }
  // Stretches are mixed, too: of 512 sequences of a file with 5/8 nobody is far from 320.
  for (std::uint64_t first = 0; first < kMixtureBlock; first += 512) {
    int count = 0;
    for (std::uint64_t i = first; i < first + 512; ++i) count += order.place(i).file == 0;
    EXPECT_NEAR(count, 320, 60);
  }
}

TEST(MixtureOrder, OfValidationFollowsTheWeightsAsLongAsThereIsAnything) {
  const std::vector<double> weights = {3, 1};
  const std::vector<std::uint64_t> counts = {6, 10};
  const auto order = validation_mixture(weights, counts);
  ASSERT_EQ(order.size(), 16u);
  std::vector<std::uint64_t> next(2);
  for (const MixtureOrder::Place& place : order) EXPECT_EQ(place.number, next[place.file]++);
  EXPECT_EQ(next[0], 6u);
  for (std::size_t i = 0; i < 8; ++i) {
    const auto of_first = std::count_if(order.begin(), order.begin() + static_cast<int>(i) + 1,
                                        [](const auto& place) { return place.file == 0; });
    EXPECT_NEAR(static_cast<double>(of_first), 0.75 * static_cast<double>(i + 1), 1.0);
  }
  EXPECT_TRUE(validation_mixture(weights, std::vector<std::uint64_t>{0, 0}).empty());
}

class Mixtures : public RecordedRun {
 protected:
  std::string tokens(const char* name, int count, int first, int kinds) const {
    const std::string path = (folder / name).string();
    data::TokenWriter writer(path, {.vocabulary = 40, .tokenizer_hash = ""});
    std::vector<data::TokenId> ids;
    for (int i = 0; i < count; ++i) ids.push_back(first + (i * i + i / 3) % kinds);
    writer.append(ids);
    writer.finish();
    return path;
  }
  // Ids 0 to 9, and 20 to 39.
  std::string low() const { return tokens("low.tokens", 900, 0, 10); }
  std::string high() const { return tokens("high.tokens", 400, 20, 20); }
  std::string mixture() const { return "data.mixture=3 " + low() + ",1 " + high(); }
  static Dataset opened(const std::vector<std::string>& entries) {
    data::DataOptions options;
    options.mixture = entries;
    return open_dataset(options, std::filesystem::path("unused"));
  }
  std::vector<std::string> tiny_mixture(const char* dir) const {
    std::vector<std::string> settings = tiny(dir);
    settings[0] = mixture();
    settings[1] = "data.validation_fraction=0.1";
    return settings;
  }
  static std::vector<std::int32_t> copied(const Tensor& tensor) {
    const auto values = tensor.as<const std::int32_t>();
    return {values.begin(), values.end()};
  }
};

TEST_F(Mixtures, OfOneFileAreThatFile) {
  data::DataOptions options;
  options.tokens = low();
  const Dataset plain = open_dataset(options, folder / "cache");
  const Dataset mixed = opened({"0.25 " + low()});
  const SourceSetup setup{.shape = {.batch = 3, .sequence = 8}, .vocabulary = 40, .seed = 5};
  const auto a = make_batch_source(plain, setup);
  const auto b = make_batch_source(mixed, setup);
  EXPECT_EQ(a->sequences(), b->sequences());
  EXPECT_EQ(a->validation_batches(), b->validation_batches());
  for (const std::uint64_t first : {0, 7, 5000}) {
    EXPECT_EQ(copied(a->training(first, 1)[0].tokens), copied(b->training(first, 1)[0].tokens));
    EXPECT_EQ(copied(a->training(first, 1)[0].targets), copied(b->training(first, 1)[0].targets));
  }
  for (std::uint64_t i = 0; i < a->validation_batches(); ++i) {
    EXPECT_EQ(copied(a->validation(i).targets), copied(b->validation(i).targets));
  }
}

TEST_F(Mixtures, HaveTheSequencesThatEachFileHasAlone) {
  const Dataset mixed = opened({"3 " + low(), "1 " + high()});
  const SourceSetup setup{.shape = {.batch = 1, .sequence = 8}, .vocabulary = 40, .seed = 5};
  const auto source = make_batch_source(mixed, setup);
  std::vector<std::unique_ptr<BatchSource>> alone;
  for (std::size_t i = 0; i < 2; ++i) {
    SourceSetup own = setup;
    if (i == 1) own.seed = nn::seed_for(setup.seed, "mixture file 1");
    alone.push_back(make_batch_source(mixed.mixture[i], own));
  }
  EXPECT_EQ(source->sequences(), alone[0]->sequences() + alone[1]->sequences());
  std::vector<std::uint64_t> next(2);
  for (std::uint64_t i = 0; i < kMixtureBlock; ++i) {
    const std::vector<std::int32_t> got = copied(source->training(i, 1)[0].tokens);
    const std::size_t file = got[0] >= 20 ? 1 : 0;
    EXPECT_EQ(got, copied(alone[file]->training(next[file]++, 1)[0].tokens));
  }
  EXPECT_EQ(next[0], 3 * next[1]);
  EXPECT_NE(data_fingerprint(mixed), data_fingerprint(opened({"1 " + low(), "1 " + high()})));
}

TEST_F(Mixtures, AreTheSameForARunThatWasInterruptedAndItsEvaluation) {
  const std::vector<std::string> more = {"train.steps=20", "model.vocabulary=40",
                                         "train.validate_batches=0"};
  run(tiny_mixture("whole"), more, &recorder);
  const auto losses = recorder->losses;
  const double validation = recorder->validation.rbegin()->second;
  EXPECT_THAT(recorder->facts.data, HasSubstr("mixture of 2 files: 1,300 tokens"));
  std::map<std::int64_t, double> parts;
  while (run(tiny_mixture("parts"), more, &recorder, [&](std::int64_t step) {
           if (step % 3 == 0) ::raise(SIGTERM);
         }) == RunOutcome::kInterrupted) {
    parts.insert(recorder->losses.begin(), recorder->losses.end());
  }
  parts.insert(recorder->losses.begin(), recorder->losses.end());
  EXPECT_EQ(parts, losses);
  const StopSignal stop;
  EXPECT_EQ(evaluate({.model = folder / "whole"}, RunGroup(nullptr), stop, {})->loss, validation);
  const auto all = evaluate({.model = folder / "whole", .part = EvaluatedPart::kAll},
                            RunGroup(nullptr), stop, {});
  EXPECT_EQ(all->targets, 899u + 399u);
  EXPECT_THAT(error_of([&] { run(tiny_mixture("masked"), {"model.family=bert"}, &recorder); }),
              HasSubstr("give data.tokenizer"));
}

TEST_F(Mixtures, RefuseWhatCannotBe) {
  const auto why = [&](std::vector<std::string> more) {
    return error_of([&] { run(tiny_mixture("run"), std::move(more), &recorder); });
  };
  EXPECT_THAT(why({"data.mixture=" + low()}), HasSubstr("expected a weight over 0"));
  EXPECT_THAT(why({"data.mixture=0 " + low()}), HasSubstr("expected a weight over 0"));
  EXPECT_THAT(why({"data.mixture=1 missing.tokens"}), HasSubstr("there is nothing of that name"));
  EXPECT_THAT(why({"data.tokens=" + low()}), HasSubstr("several kinds of data"));
  EXPECT_THAT(why({"data.validation_tokens=" + low()}), HasSubstr("do not go with data.mixture"));
  EXPECT_THAT(why({"model.family=encoder-decoder"}), HasSubstr("data.mixture"));
  EXPECT_THAT(why({"data.mixture=1 " + (folder / "text.txt").string()}), HasSubstr("text.txt"));
}

class MixturesOfWorkers : public ThreadRuns {};

TEST_F(MixturesOfWorkers, AreTheSameForAnyNumberOfThem) {
  for (const char* name : {"a", "b"}) {
    data::TokenWriter writer(folder / (std::string(name) + ".tokens"),
                             {.vocabulary = 30, .tokenizer_hash = ""});
    std::vector<data::TokenId> ids;
    for (int i = 0; i < 700; ++i) ids.push_back((name[0] + i * i) % 30);
    writer.append(ids);
    writer.finish();
  }
  std::optional<Curve> expected;
  for (const int ranks : {1, 2, 4}) {
    const std::string dir = fmt::format("run{}", ranks);
    Settings settings = small_run(dir, 12, {"parallel.reduction=tree"});
    settings[0] = fmt::format("data.mixture=2 {},1 {}", (folder / "a.tokens").string(),
                              (folder / "b.tokens").string());
    settings[1] = "data.validation_fraction=0.2";
    run_ranks(ranks, settings);
    if (!expected) expected = curve(dir);
    EXPECT_EQ(curve(dir), *expected) << ranks;
  }
}

}  // namespace
}  // namespace lockstep::train
