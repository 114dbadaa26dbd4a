// Workers whose parameters differ: they are named, and nothing is saved any more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "lockstep/train/run/saving.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

TrainOptions diverging_options(int zero) {
  TrainOptions options;
  options.model = {.family = ModelFamily::kGpt2,
                   .layers = 2,
                   .hidden = 16,
                   .heads = 2,
                   .vocabulary = 31,
                   .positions = 8};
  options.batch = {.sequence = 8, .sequences = 6, .micro = 1, .workers = 3};
  options.precision = plan::Precision::kF32;
  options.parallel.zero = zero;
  return options;
}

TEST(Divergence, IsFoundInWhatWorkersHoldAlike) {
  for (const int zero : {0, 1, 2}) {
    run_workers(diverging_options(zero), [&](Trainer& trainer, Communicator* others) {
      trainer.start();
      run_steps(trainer, 2, [](const StepMetrics&) {});
      const std::string before = trainer.strategy().compare_workers(true);
      EXPECT_EQ(before.size(), 32u);
      EXPECT_EQ(trainer.strategy().compare_workers(false), before);
      run_steps(trainer, 1, [](const StepMetrics&) {});
      EXPECT_NE(trainer.strategy().compare_workers(true), before);
      if (others->rank() == 1) trainer.replica().states().parameters.as<float>()[0] += 1e-3f;
      try {
        trainer.strategy().compare_workers(true);
        ADD_FAILURE() << "nobody noticed at stage " << zero;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kMismatch);
        EXPECT_THAT(error.what(), HasSubstr("the parameters of rank 1 differ"));
        EXPECT_EQ(error.ranks(), std::vector{1});
      }
    });
  }
}

TEST(Divergence, IsFoundInWhatServersHaveSent) {
  TrainOptions options = diverging_options(0);
  options.parallel.strategy = parallel::StrategyKind::kParameterServer;
  const auto run = [&](bool damaged) {
    run_workers(options, [&](Trainer& trainer, Communicator* others) {
      trainer.start();
      run_steps(trainer, 2, [](const StepMetrics&) {});
      EXPECT_EQ(trainer.strategy().compare_workers(true).size(), 32u);
      if (damaged && others->rank() == 1) {
        trainer.replica().states().parameters.as<float>()[0] += 1e-3f;
      }
      trainer.strategy().compare_workers(true);
    });
  };
  EXPECT_NO_THROW(run(false));
  try {
    run(true);
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("the parameters of worker 1 differ"));
  }
}

TEST(Divergence, OfGatheredBlocksIsLookedForBlockByBlock) {
  run_workers(diverging_options(3), [&](Trainer& trainer, Communicator*) {
    trainer.start();
    run_steps(trainer, 2, [](const StepMetrics&) {});
    const std::string whole = trainer.strategy().compare_workers(true);
    EXPECT_EQ(trainer.strategy().compare_workers(true), whole);
    const std::string first = trainer.strategy().compare_workers(false);
    EXPECT_NE(trainer.strategy().compare_workers(false), first);
    run_steps(trainer, 1, [](const StepMetrics&) {});  // and the run continues
    EXPECT_NE(trainer.strategy().compare_workers(true), whole);
  });
}

TEST(Divergence, IsNotSavedAndTheErrorNamesTheCleanCheckpoint) {
  const fs::path folder =
      fs::temp_directory_path() / ("lockstep_divergence_" + std::to_string(::getpid()));
  for (const int zero : {0, 2}) {
    fs::remove_all(folder);
    RunSettings settings;
    settings.options.dir = folder.string();
    settings.options.train = diverging_options(zero);
    run_workers(settings.options.train, [&](Trainer& trainer, Communicator* others) {
      RunGroup group(others);
      CheckpointFolder checkpoints(folder);
      const Audience nobody({});
      const Dataset dataset{};
      const std::string data;
      const std::shared_ptr<const data::Tokenizer> none;
      RunSaving saving({.options = settings.options,
                        .config = settings.config,
                        .audience = nobody,
                        .group = group,
                        .checkpoints = checkpoints,
                        .dataset = dataset,
                        .data = data,
                        .model_tokenizer = none,
                        .strategy = trainer.strategy(),
                        .trainer = trainer});
      saving.start();
      const auto corrupt = [&] {
        if (others->rank() != 2) return;
        trainer.replica().states().parameters.as<float>()[0] += 1e-3f;
      };
      const auto step = [&] {
        run_steps(trainer, 1, [](const StepMetrics&) {});
        saving.changed();
      };
      step();
      saving.save();
      saving.finish();
      group.barrier();
      EXPECT_EQ(checkpoints.newest_compared(), 1);
      step();
      corrupt();
      try {
        saving.save();
        ADD_FAILURE() << "it was saved";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kMismatch);
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("after step 2 the parameters of rank 2 differ"),
                          HasSubstr("The checkpoint of step 1 is the newest that is known to be "
                                    "clean")));
      }
      group.barrier();
      EXPECT_EQ(checkpoints.steps(), std::vector<std::int64_t>{1});
    });
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::train
