#include "lockstep/train/run/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/run_folder.h"
#include "tests/paths.h"
#include "tests/train/run/recorded_run.h"

namespace lockstep::train {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
namespace fs = std::filesystem;

using RunTest = RecordedRun;

TEST_F(RunTest, LearnsValidatesAndSaves) {
  EXPECT_EQ(run(tiny("a"), {"train.steps=40", "optimizer.learning_rate=1e-2"}, &recorder),
            RunOutcome::kFinished);
  ASSERT_THAT(recorder->losses, SizeIs(40));
  EXPECT_LT(recorder->losses[40], 0.9 * recorder->losses[1]);
  EXPECT_THAT(recorder->validation, SizeIs(1)) << "at the end";
  EXPECT_THAT(recorder->warnings, IsEmpty());
  EXPECT_EQ(recorder->facts.first_step, 1);
  EXPECT_EQ(recorder->facts.steps, 40);
  EXPECT_THAT(recorder->ends, SizeIs(1));
  EXPECT_TRUE(fs::exists(folder / "a" / "checkpoints" / "step-00000040" / "manifest.json"));
  EXPECT_THAT(bytes_of(RunFolder::config_of(folder / "a")), HasSubstr("model.layers = 2"));
}

TEST_F(RunTest, InterruptedAndResumedEqualsOneThatNeverStopped) {
  for (const char* precision : {"train.precision=f32", "train.precision=f16"}) {
    const std::string whole = std::string("whole") + precision;
    const std::string parts = std::string("parts") + precision;
    run(tiny(whole.c_str()), {precision}, &recorder);
    const auto expected = recorder->losses;
    std::map<std::int64_t, double> losses;
    const auto stop_at = [](std::int64_t when) {
      return [when](std::int64_t step) {
        if (step == when) ::raise(SIGTERM);
      };
    };
    EXPECT_EQ(run(tiny(parts.c_str()), {precision}, &recorder, stop_at(3)),
              RunOutcome::kInterrupted);
    EXPECT_THAT(recorder->losses, SizeIs(3));
    losses.merge(recorder->losses);
    EXPECT_EQ(run(tiny(parts.c_str()), {precision}, &recorder, stop_at(8)),
              RunOutcome::kInterrupted);
    EXPECT_EQ(recorder->facts.first_step, 4);
    losses.merge(recorder->losses);
    EXPECT_EQ(run(tiny(parts.c_str()), {precision}, &recorder), RunOutcome::kFinished);
    losses.merge(recorder->losses);
    EXPECT_EQ(losses, expected);
    EXPECT_EQ(states(parts.c_str(), "step-00000012"), states(whole.c_str(), "step-00000012"));
    EXPECT_EQ(run(tiny(parts.c_str()), {precision}, &recorder), RunOutcome::kFinished);
    EXPECT_THAT(recorder->losses, IsEmpty()) << "all was done";
  }
}

TEST_F(RunTest, LearnsNothingOfRunsThatLieAmongItsTexts) {
  const fs::path corpus = folder / "corpus";
  fs::create_directories(corpus / "deep");
  fs::copy(folder / "text.txt", corpus / "a.txt");
  fs::copy(folder / "text.txt", corpus / "deep" / "b.txt");
  const std::vector<std::string> texts = {"data.text=" + corpus.string(),
                                          "data.validation_text=" + corpus.string()};
  const auto train = [&](const char* dir, const char* steps) {
    std::vector<std::string> more = texts;
    more.emplace_back(steps);
    run(tiny(dir), more, &recorder);
    return recorder->losses;
  };
  auto expected = train("elsewhere", "train.steps=6");
  const auto validation = recorder->validation;
  const std::string data = recorder->facts.data;
  train("corpus/run", "train.steps=6");
  EXPECT_EQ(recorder->losses, expected);
  EXPECT_EQ(recorder->validation, validation);
  auto parts = train("corpus/deep/run", "train.steps=3");
  parts.merge(train("corpus/deep/run", "train.steps=6"));
  EXPECT_EQ(parts, expected) << "beside another run, and begun anew";
  EXPECT_EQ(recorder->validation, validation);
  EXPECT_EQ(recorder->facts.data, data);
  EXPECT_THAT(error_of([&] {
                run(tiny("corpus/run"), {"data.text=" + (corpus / "run").string()}, &recorder);
              }),
              HasSubstr("is the folder of a run"));
}

TEST_F(RunTest, TheSplitIntoMicroBatchesIsNoOtherData) {
  run(tiny("a"), {"model.dropout=0"}, &recorder);
  const auto expected = recorder->losses;
  run(tiny("b"), {"model.dropout=0", "train.micro_batch_size=4"}, &recorder);
  for (const auto& [step, loss] : expected) EXPECT_NEAR(recorder->losses[step], loss, 1e-5) << step;
}

TEST_F(RunTest, ADamagedCheckpointIsPassedOverLoudly) {
  run(tiny("a"), {}, &recorder);
  const auto expected = recorder->losses;
  const fs::path newest = folder / "a" / "checkpoints" / "step-00000012" / "states.safetensors";
  fs::resize_file(newest, fs::file_size(newest) - 1);
  run(tiny("a"), {}, &recorder);
  EXPECT_THAT(recorder->warnings, SizeIs(1));
  EXPECT_EQ(recorder->facts.first_step, 11) << "the one of step 10 was whole";
  EXPECT_EQ(recorder->losses[12], expected.at(12));
}

TEST_F(RunTest, ALossThatIsNoNumberEndsItWithTheBlockAndTheWayBack) {
  const auto train = [&](const char* dir, std::vector<std::string> more) {
    more.insert(more.end(), {"optimizer.max_grad_norm=0", "checkpoint.every=1"});
    return error_of([&] { run(tiny(dir), more, &recorder); });
  };
  const std::string said = train("a", {"optimizer.learning_rate=1e30"});
  EXPECT_THAT(said, AllOf(HasSubstr("step 2 has a loss of"), HasSubstr("block "),
                          HasSubstr("step-00000001, and the run starts from scratch"),
                          Not(HasSubstr("train.precision"))));
  ASSERT_THAT(recorder->ends, SizeIs(1));
  EXPECT_EQ(recorder->ends.front().reason, RunEnd::Reason::kFailed);
  EXPECT_EQ(recorder->ends.front().message, said);
  EXPECT_THAT(train("bf16", {"optimizer.learning_rate=1e30", "train.precision=bf16"}),
              HasSubstr("or train.precision = \"f32\" may help"));
  // What it says can be done.
  EXPECT_EQ(train("b", {"train.steps=2"}), "");
  EXPECT_THAT(train("b", {"optimizer.learning_rate=1e30"}),
              AllOf(HasSubstr("step 4 has a loss of"),
                    HasSubstr("step-00000003, and the run continues from the last good"),
                    HasSubstr("step-00000002. A lower optimizer.learning_rate")));
  EXPECT_THAT(train("b", {}), HasSubstr("step 4 has a loss of")) << "it was saved";
  fs::remove_all(folder / "b/checkpoints/step-00000003");
  EXPECT_EQ(train("b", {}), "");
  EXPECT_EQ(recorder->facts.first_step, 3);
}

TEST_F(RunTest, AValidationLossThatIsNoNumberEndsItBeforeItIsSaved) {
  EXPECT_EQ(error_of([&] {
              run(tiny("a"), {"train.steps=2", "checkpoint.every=1"}, &recorder);
            }),
            "");
  for (const char* when : {"train.steps=3", "train.validate_every=3"}) {
    const std::string said = error_of([&] {
      run(tiny("a"),
          {"optimizer.learning_rate=1e37", "optimizer.max_grad_norm=0", "checkpoint.every=1", when},
          &recorder);
    });
    EXPECT_THAT(said, AllOf(HasSubstr("validation after step 3 has a loss of"), HasSubstr("block "),
                            HasSubstr("the last good checkpoint is"), HasSubstr("step-00000002")));
    ASSERT_THAT(recorder->ends, SizeIs(1));
    EXPECT_EQ(recorder->ends.front().message, said);
    EXPECT_THAT(recorder->losses, SizeIs(1)) << "it has been told";
    EXPECT_FALSE(fs::exists(folder / "a/checkpoints/step-00000003"));
  }
}

TEST_F(RunTest, ASampleIsCutShortByTheEndAndMadeAfterIt) {
  const std::vector<std::string> wanted = {"sample.every=2", "sample.tokens=9", "train.steps=4"};
  const auto train = [&](const char* dir, std::int64_t stop) {
    return run(tiny(dir), wanted, &recorder, [stop](std::int64_t step) {
      if (step == stop) ::raise(SIGTERM);
    });
  };
  EXPECT_EQ(train("whole", 0), RunOutcome::kFinished);
  const std::vector<std::string> expected = recorder->samples;
  EXPECT_THAT(expected, SizeIs(2));
  EXPECT_EQ(train("parts", 2), RunOutcome::kInterrupted);
  EXPECT_THAT(recorder->samples, IsEmpty());
  EXPECT_EQ(train("parts", 4), RunOutcome::kInterrupted) << "in the last one";
  EXPECT_THAT(recorder->samples, ElementsAre(expected[0]));
  EXPECT_EQ(train("parts", 0), RunOutcome::kFinished);
  EXPECT_THAT(recorder->samples, ElementsAre(expected[1]));
  EXPECT_THAT(recorder->losses, IsEmpty());
  EXPECT_EQ(train("parts", 0), RunOutcome::kFinished);
  EXPECT_THAT(recorder->samples, IsEmpty());
  EXPECT_EQ(bytes_of(folder / "parts/samples.jsonl"), bytes_of(folder / "whole/samples.jsonl"));
}

TEST_F(RunTest, RefusesAForeignFolderAndOneThatIsInUse) {
  fs::create_directory(folder / "foreign");
  std::ofstream(folder / "foreign" / "letters.txt") << "dear ...";
  EXPECT_THAT(error_of([&] { run(tiny("foreign"), {}, &recorder); }),
              HasSubstr("lockstep did not write"));
  EXPECT_THAT(error_of([&] { run(tiny("text.txt"), {}, &recorder); }), HasSubstr("text.txt"));
  const RunFolder taken(folder / "taken");
  EXPECT_THAT(error_of([&] { run(tiny("taken"), {}, &recorder); }),
              HasSubstr("another process is training in"));
}

TEST_F(RunTest, RefusesAFolderWhoseLockIsAnothersOwn) {
  fs::create_directory(folder / "foreign");
  std::ofstream(folder / "foreign" / "lock") << "1234";
  EXPECT_THAT(error_of([&] { run(tiny("foreign"), {}, &recorder); }),
              HasSubstr("lockstep did not write"));
  EXPECT_EQ(bytes_of(folder / "foreign" / "lock"), "1234");
  // Killed before it wrote more than that.
  fs::create_directory(folder / "killed");
  std::ofstream(folder / "killed" / "lock");
  EXPECT_EQ(run(tiny("killed"), {"train.steps=1"}, &recorder), RunOutcome::kFinished);
  std::ofstream(folder / "killed" / "notes.txt") << "my best run";
  EXPECT_EQ(run(tiny("killed"), {"train.steps=2"}, &recorder), RunOutcome::kFinished);
}

// flock() asks for no more than a file that can be opened.
TEST_F(RunTest, OnlyTheOwnerOfARunCanOpenItsLock) {
  const auto others = fs::perms::group_all | fs::perms::others_all;
  const fs::path lock = folder / "mine" / "lock";
  run(tiny("mine"), {"train.steps=1"}, &recorder);
  EXPECT_EQ(fs::status(lock).permissions() & others, fs::perms::none);
  fs::permissions(lock, fs::perms::others_read, fs::perm_options::add);  // an earlier version's
  run(tiny("mine"), {"train.steps=2"}, &recorder);
  EXPECT_EQ(fs::status(lock).permissions() & others, fs::perms::none);
}

TEST_F(RunTest, SaysWhatHasChangedAndThatNothingIsLeftToDo) {
  run(tiny("a"), {"train.steps=2"}, &recorder);
  run(tiny("a"), {"train.steps=4", "train.seed=7", "train.log_every=3"}, &recorder);
  EXPECT_THAT(recorder->notices,
              Contains("settings that changed since the checkpoint: train.seed = 7 (was 1)"));
  run(tiny("a"), {"train.steps=3", "train.seed=7"}, &recorder);
  EXPECT_THAT(recorder->losses, IsEmpty());
  EXPECT_THAT(recorder->notices, ElementsAre(AllOf(HasSubstr("there is nothing to do"),
                                                   HasSubstr("continues after step 4"))));
}

TEST_F(RunTest, GoesThroughTheDataSoManyTimes) {
  run(tiny("a"), {"train.epochs=0.05", "schedule.decay=cosine", "schedule.warmup_ratio=0.5"},
      &recorder);
  const std::int64_t steps = recorder->facts.steps;
  EXPECT_THAT(recorder->losses, SizeIs(static_cast<std::size_t>(steps)));
  const auto tokens = 0.9 * static_cast<double>(fs::file_size(folder / "text.txt"));
  EXPECT_NEAR(static_cast<double>(steps), 0.05 * tokens / 8 / 4, 1);
  EXPECT_THAT(recorder->facts.config, HasSubstr(fmt::format("schedule.decay_steps = {}", steps)));
}

TEST_F(RunTest, MayEndWithinItsWarmup) {
  const std::vector<std::string> rising = {"schedule.decay=cosine", "schedule.warmup_steps=100"};
  const auto with = [&](const char* steps) {
    std::vector<std::string> settings = rising;
    settings.emplace_back(steps);
    return settings;
  };
  EXPECT_EQ(run(tiny("a"), with("train.steps=3"), &recorder), RunOutcome::kFinished);
  EXPECT_THAT(recorder->warnings,
              Contains(AllOf(HasSubstr("ends at step 3"), HasSubstr("schedule.warmup_steps = 100"),
                             HasSubstr("not to optimizer.learning_rate = "))));
  EXPECT_EQ(run(tiny("a"), with("train.steps=5"), &recorder), RunOutcome::kFinished);
  EXPECT_THAT(error_of([&] { run(tiny("b"), with("schedule.decay_steps=100"), &recorder); }),
              HasSubstr("before the warm-up ends at step schedule.warmup_steps = 100"));
}

TEST_F(RunTest, SaysWhereATreeOfGradientsIsThatOfItsWorkersAlone) {
  const auto warnings = [&](const char* dir, const char* batch) {
    run(tiny(dir), {"train.steps=1", "parallel.reduction=tree", batch}, &recorder);
    return recorder->warnings;
  };
  EXPECT_THAT(warnings("even", "train.global_batch_size=8"), IsEmpty());
  EXPECT_THAT(warnings("odd", "train.global_batch_size=6"),
              ElementsAre(HasSubstr("3 micro-batches for one worker")));
}

TEST_F(RunTest, GoesOnWithTheTokenizerOfItsModel) {
  const std::string vocabulary = "model.vocabulary=300";  // for both: only comparing them shows it
  run(tiny("a"), {vocabulary, "train.steps=2"}, &recorder);
  EXPECT_THAT(error_of([&] {
                run(tiny("a"), {vocabulary, "data.tokenizer=byte"}, &recorder);
              }),
              AllOf(HasSubstr("another tokenizer (character of "), HasSubstr("byte of 256 ids")));
  EXPECT_EQ(run(tiny("a"), {vocabulary, "data.tokenizer=", "train.steps=3"}, &recorder),
            RunOutcome::kFinished)
      << "left open it is the run's own";
}

TEST_F(RunTest, BeginsWithTheModelAndTheTokenizerThatItsParametersHave) {
  run(tiny("a"), {"train.steps=2", "model.vocabulary=300"}, &recorder);
  const auto begin = [&](const char* dir, std::vector<std::string> more) {
    return run(
        {"data.text=" + (folder / "text.txt").string(), "run.init_from=" + (folder / "a").string(),
         "run.dir=" + (folder / dir).string(), "train.global_batch_size=2", "train.steps=1",
         "train.precision=f32", "train.threads=1", "train.validate_batches=1"},
        std::move(more), &recorder);
  };
  EXPECT_EQ(begin("b", {}), RunOutcome::kFinished);
  EXPECT_THAT(recorder->facts.config,
              AllOf(HasSubstr("model.hidden = 16"), HasSubstr("model.positions = 8"),
                    HasSubstr("data.tokenizer = \"\"")));
  EXPECT_EQ(bytes_of(folder / "b/checkpoints/step-00000001/tokenizer.json"),
            bytes_of(folder / "a/checkpoints/step-00000002/tokenizer.json"));
  EXPECT_EQ(begin("c", {"data.tokenizer=byte"}), RunOutcome::kFinished);
  EXPECT_THAT(recorder->warnings, Contains(HasSubstr("trained with another tokenizer")));
}

TEST_F(RunTest, SaysWhyThereAreNoSamples) {
  EXPECT_THAT(error_of([&] {
                run(tiny("a"), {"sample.every=1", "sample.prompt=\xC3\xA9"}, &recorder);
              }),
              HasSubstr("sample.prompt cannot be encoded"));
  EXPECT_FALSE(fs::exists(folder / "a")) << "found out before the first step";
  run(tiny("a"), {"sample.every=2", "sample.tokens=3", "train.steps=5"}, &recorder);
  EXPECT_THAT(recorder->samples, SizeIs(3)) << "after 2, 4 and the last";
  run(tiny("b"), {"model.family=bert", "sample.every=1", "train.steps=1"}, &recorder);
  EXPECT_THAT(recorder->samples, IsEmpty());
  EXPECT_THAT(recorder->warnings, ElementsAre(HasSubstr("writes no samples")));
}

TEST_F(RunTest, RefusesAModelBeforeItTokenises) {
  EXPECT_THAT(error_of([&] { run(tiny("a"), {"model.heads=3"}, &recorder); }),
              HasSubstr("3 heads"));
  EXPECT_THAT(recorder->notices, IsEmpty());
}

TEST_F(RunTest, RefusesToGoOnWithAnotherModel) {
  run(tiny("a"), {"train.steps=2"}, &recorder);
  EXPECT_THAT(error_of([&] { run(tiny("a"), {"model.hidden=32"}, &recorder); }), HasSubstr("16"));
  EXPECT_THAT(error_of([&] { run(tiny("a"), {"run.resume=false"}, &recorder); }),
              HasSubstr("run.resume = false"));
}

TEST_F(RunTest, IsRefusedOverItsMemoryLimitBeforeItStartsAndLeavesNothing) {
  EXPECT_THAT(error_of([&] { run(tiny("a"), {"memory.limit=10KiB"}, &recorder); }),
              HasSubstr("over memory.limit"));
  EXPECT_FALSE(fs::exists(folder / "a"));
  fs::create_directory(folder / "a");
  EXPECT_THAT(error_of([&] { run(tiny("a"), {"memory.limit=10KiB"}, &recorder); }),
              HasSubstr("over memory.limit"));
  EXPECT_TRUE(fs::is_empty(folder / "a"));
}

TEST_F(RunTest, EveryExampleIsAWholeConfiguration) {
  int examples = 0;
  for (const auto& entry : fs::directory_iterator(in_sources("examples"))) {
    if (entry.path().extension() != ".toml") continue;
    ++examples;
    // As it is, and by who only wants to see a step of it.
    for (const char* more : {"train.log_every=1", "train.steps=1"}) {
      RunOptions options;
      Config config;
      bind(config, options);
      config.read_file(entry.path().string());
      config.set(more);
      EXPECT_NO_THROW(completed(options)) << entry.path() << " " << more;
    }
  }
  EXPECT_EQ(examples, 6);
}

TEST_F(RunTest, ExamplesWithDataOfTheirOwnLearn) {
  for (const std::string name : {"translation", "house-price"}) {
    RunSettings given;
    auto& [options, config] = given;
    config.read_file(in_sources("examples/") + name + ".toml");
    config.set("run.dir=" + (folder / name.c_str()).string());
    options.data.pairs =
        options.data.pairs.empty() ? std::string() : in_sources("examples/numbers.tsv");
    options.data.table =
        options.data.table.empty() ? std::string() : in_sources("examples/house-prices.csv");
    for (const char* one : {"train.steps=15", "train.global_batch_size=4", "train.validate_every=0",
                            "train.validate_batches=1", "schedule.warmup_steps=5"}) {
      config.set(one);
    }
    if (name == "translation") {
      config.set("model.hidden=32");
      config.set("model.feed_forward=64");
    }
    const StopSignal stop;
    std::vector<std::unique_ptr<RunObserver>> audience;
    audience.push_back(std::make_unique<Recorder>());
    recorder = static_cast<Recorder*>(audience.front().get());
    EXPECT_EQ(run_training(given, audience, stop), RunOutcome::kFinished);
    EXPECT_LT(recorder->losses[15], recorder->losses[1]) << name;
  }
}

TEST(Examples, AreReadAndPlanned) {
  int examples = 0;
  for (const auto& entry : fs::directory_iterator(in_sources("examples"))) {
    if (entry.path().extension() != ".toml") continue;
    ++examples;
    RunOptions options;
    Config config;
    bind(config, options);
    EXPECT_NO_THROW({
      config.read_file(entry.path().string());
      completed(options);
    }) << entry.path();
  }
  EXPECT_GE(examples, 6);
}

}  // namespace
}  // namespace lockstep::train
