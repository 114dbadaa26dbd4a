#include "lockstep/train/memory/run_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <array>

#include <fstream>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/train/memory/smaller_run.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/paths.h"

namespace lockstep::train {
namespace {

using Recompute = RecomputeChoice;
using ::testing::HasSubstr;
using ::testing::Not;

TrainOptions small() {
  TrainOptions options;
  options.model.layers = 6;
  options.model.hidden = 64;
  options.model.heads = 4;
  options.model.vocabulary = 300;
  options.batch = {.sequence = 256, .micro = 8, .accumulation = 2};
  options.recompute = Recompute::kNone;
  return options;
}

class RunPlan : public ::testing::Test {
 protected:
  std::size_t bytes(const TrainOptions& options) const { return plan_run(options, *ops_).bytes(); }
  std::string refusal(TrainOptions options, std::size_t limit) const {
    options.memory_limit = limit;
    try {
      check_limit(options, plan_run(options, *ops_), *ops_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  }

  const std::unique_ptr<Ops> ops_ = make_reference_ops();
};

TEST_F(RunPlan, ALimitThatIsKeptIsNoMatter) {
  EXPECT_EQ(refusal(small(), 0), "");
  EXPECT_EQ(refusal(small(), bytes(small())), "");
  EXPECT_NE(refusal(small(), bytes(small()) - 1), "");
}

TEST_F(RunPlan, ARefusalTellsBothNumbersAndTheClasses) {
  const std::string said = refusal(small(), 5'000'000);
  EXPECT_THAT(said, HasSubstr("over memory.limit"));
  EXPECT_THAT(said, HasSubstr("(5,000,000 bytes)"));
  for (const char* part : {"parameters", "gradients", "optimizer", "activations"}) {
    EXPECT_THAT(said, HasSubstr(part));
  }
}

TEST_F(RunPlan, FirstRecomputationIsAdvisedThenSmallerMicroBatches) {
  TrainOptions options = small();
  options.recompute = Recompute::kSelective;
  const std::size_t selective = bytes(options);
  EXPECT_THAT(refusal(small(), selective),
              HasSubstr("that fits is train.recompute = \"selective\","));
  options.recompute = Recompute::kFull;
  const std::size_t full = bytes(options);
  ASSERT_LT(full, selective);
  EXPECT_THAT(refusal(small(), full), HasSubstr("recompute = \"full\", which takes"));
  const std::string said = refusal(small(), full - 1);
  EXPECT_THAT(said,
              HasSubstr("train.micro_batch_size = 4 and train.gradient_accumulation_steps = 4"));
}

TEST_F(RunPlan, WhatIsAdvisedFits) {
  const std::size_t whole = bytes(small());
  int advised = 0;
  for (std::size_t limit = whole - 1; limit > 0; limit = limit * 9 / 10) {
    const SmallerRun fit = nearest_run(small(), *ops_, limit);
    if (!fit.fits) break;
    ++advised;
    EXPECT_EQ(bytes(with(small(), fit)), fit.bytes);
    EXPECT_LE(fit.bytes, limit);
    EXPECT_EQ(fit.batch.micro * fit.batch.accumulation, 16) << "a step keeps its sequences";
  }
  EXPECT_GT(advised, 5);
}

TEST_F(RunPlan, WorkersAreAdvisedToShareOutTheirStatesFirst) {
  TrainOptions options = small();
  options.batch.workers = 4;
  const std::size_t whole = bytes(options);
  EXPECT_THAT(refusal(options, whole - 1), HasSubstr("that fits is parallel.zero = 1, which"));
  options.parallel.zero = 3;
  const std::size_t shared = bytes(options);
  ASSERT_LT(shared, whole);
  options.parallel.zero = 0;
  EXPECT_EQ(nearest_run(options, *ops_, shared).zero, 3);
  options.parallel.strategy = parallel::StrategyKind::kParameterServer;
  const SmallerRun fit = nearest_run(options, *ops_, bytes(options) - 1);
  ASSERT_TRUE(fit.fits);
  EXPECT_EQ(fit.zero, 0) << "servers hold the states";
}

TEST_F(RunPlan, WhereNothingFitsTheLeastIsTold) {
  EXPECT_FALSE(nearest_run(small(), *ops_, 1000).fits);
  const std::string said = refusal(small(), 1000);
  EXPECT_THAT(said,
              HasSubstr("no choice of offload.*, parallel.zero, train.recompute, "
                        "train.micro_batch_size and train.gradient_dtype fits; the least is"));
  EXPECT_THAT(said, HasSubstr("train.recompute = \"full\", train.micro_batch_size = 1 and "
                              "train.gradient_accumulation_steps = 16"));
}

TEST_F(RunPlan, MoreWorkersAreToldAsWorkersAndServersOfTheirOwnBesideThem) {
  TrainOptions least = small();
  least.recompute = Recompute::kFull;
  least.gradient_dtype = GradientChoice::kCompute;
  least.batch = {.sequence = 256, .sequences = 16, .micro = 1, .workers = 4};
  least.parallel.zero = 3;
  EXPECT_THAT(refusal(small(), bytes(least)),
              HasSubstr("; with 4 workers and parallel.zero = 3, train.recompute = \"full\""));

  // A tree's sums of a worker's own micro-batches are fewer where more workers share a step.
  TrainOptions served = small();
  served.batch.workers = 2;
  served.parallel.strategy = parallel::StrategyKind::kParameterServer;
  served.parallel.server.placement = parallel::ServerPlacement::kDedicated;
  served.parallel.server.servers = 3;
  served.parallel.reduction = parallel::Reduction::kTree;
  least = served;
  least.recompute = Recompute::kFull;
  least.batch = {.sequence = 256, .sequences = 32, .micro = 1, .workers = 8};
  EXPECT_THAT(refusal(served, bytes(least)),
              HasSubstr("; with 8 workers (11 ranks, with servers) and train.recompute"));
}

TEST_F(RunPlan, AnOverlargeRunIsRefusedBeforeItTakesMemory) {
  TrainOptions options = small();
  options.memory_limit = 1 << 20;
  reset_peak_memory({});
  const std::size_t before = peak_memory({});
  EXPECT_THROW(Trainer(options, *ops_), Error);
  EXPECT_EQ(peak_memory({}), before);
}

TEST_F(RunPlan, GradientsAreWideOnlyWhereTheyAreAddedUp) {
  TrainOptions options = small();
  EXPECT_EQ(setup_of(options).gradient, DType::kF32);
  options.batch.accumulation = 1;
  EXPECT_EQ(setup_of(options).gradient, DType::kBF16);
  options.gradient_dtype = GradientChoice::kF32;
  EXPECT_EQ(setup_of(options).gradient, DType::kF32);
  options.gradient_dtype = GradientChoice::kCompute;
  options.batch.accumulation = 2;
  EXPECT_EQ(setup_of(options).gradient, DType::kBF16);
}

TEST(TrainOptions, AreReadFromToml) {
  TrainOptions options;
  Config config;
  bind(config, options);
  config.read_toml(R"(
    [model]
    name = "gpt2-124m"
    [train]
    precision = "f16"
    recompute = "selective"
    threads = 3
    micro_batch_size = 4
    seq_len = 512
    [optimizer]
    kind = "sgd"
    learning_rate = 1e-3
    [memory]
    limit = "8GiB"
  )",
                   "job.toml");
  EXPECT_EQ(options.precision, plan::Precision::kF16);
  EXPECT_EQ(options.recompute, Recompute::kSelective);
  EXPECT_EQ(threads_of(options), 3);
  EXPECT_EQ(shape_of(options).layers, 12u);
  EXPECT_EQ(setup_of(options).shape.sequence, 512);
  EXPECT_EQ(setup_of(options).shape.batch, 4);
  EXPECT_EQ(optimizer_state_of(options), nn::OptimizerState::kVelocity);
  EXPECT_EQ(options.memory_limit, std::size_t{8} << 30);
}

TEST(TrainOptions, AnyTwoOfTheThreeBatchSizesSayTheThird) {
  const auto sizes = [](BatchChoice batch) {
    batch = solved(batch);
    return std::array{batch.sequences, batch.micro, batch.accumulation};
  };
  EXPECT_EQ(sizes({}), (std::array{1, 1, 1}));
  EXPECT_EQ(sizes({.sequences = 12}), (std::array{12, 12, 1}));
  EXPECT_EQ(sizes({.micro = 3}), (std::array{3, 3, 1}));
  EXPECT_EQ(sizes({.accumulation = 4}), (std::array{4, 1, 4}));
  EXPECT_EQ(sizes({.sequences = 12, .micro = 3}), (std::array{12, 3, 4}));
  EXPECT_EQ(sizes({.sequences = 12, .accumulation = 3}), (std::array{12, 4, 3}));
  EXPECT_EQ(sizes({.micro = 3, .accumulation = 4}), (std::array{12, 3, 4}));
  EXPECT_EQ(sizes({.sequences = 12, .micro = 3, .accumulation = 4}), (std::array{12, 3, 4}));
  EXPECT_THROW(sizes({.sequences = 12, .micro = 5}), Error);
  EXPECT_THROW(sizes({.sequences = 12, .accumulation = 5}), Error);
  EXPECT_THROW(sizes({.sequences = 12, .micro = 3, .accumulation = 5}), Error);
  EXPECT_THROW(sizes({.micro = 1 << 20, .accumulation = 1 << 20}), Error);
}

TEST(TrainOptions, BatchSizesThatDoNotFitAreToldWithWhatToDo) {
  const auto refusal = [](const BatchChoice& batch) {
    try {
      solved(batch);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal({.sequences = 12, .workers = 13}),
            "train.global_batch_size = 12 does not fit on 13 ranks: some ranks would have no work; "
            "start 12 or fewer, or set train.global_batch_size = 13 or more");
  EXPECT_EQ(refusal({.sequences = 12, .workers = 12}), "");
  EXPECT_EQ(refusal({.sequences = 13, .workers = 13}), "");
  EXPECT_EQ(refusal({.sequences = 12, .micro = 5}),
            "train.global_batch_size = 12 and train.micro_batch_size = 5 do not fit together: the "
            "micro-batch does "
            "not divide the batch; set one that does, or another train.global_batch_size");
  EXPECT_EQ(refusal({.sequences = 14, .accumulation = 3, .workers = 2}),
            "train.global_batch_size = 14 and train.gradient_accumulation_steps = 3 do not fit "
            "together on 2 ranks: the sequences cannot be split evenly; train.global_batch_size "
            "must be a multiple of 6");
  EXPECT_EQ(refusal({.sequences = 18, .accumulation = 3, .workers = 2}), "");
  EXPECT_THAT(refusal({.sequences = 12, .micro = 3, .accumulation = 5}),
              HasSubstr("a step has 15 sequences; set train.global_batch_size to match"));
  EXPECT_EQ(refusal({.sequences = 15, .micro = 3, .accumulation = 5}), "");
  EXPECT_THAT(refusal({.sequences = 12, .micro = 6, .workers = 3}),
              HasSubstr("choose a smaller train.micro_batch_size"));
  EXPECT_THAT(refusal({.micro = 1 << 20, .accumulation = 1 << 20}),
              HasSubstr("1099511627776 sequences, which is too many"));
}

TEST(TrainOptions, TheExampleOfTheDocsIsOne) {
  std::ifstream docs(in_sources("docs/train-step.md"));
  std::string toml;
  bool inside = false;
  for (std::string line; std::getline(docs, line);) {
    if (line.starts_with("```")) {
      inside = line == "```toml";
    } else if (inside) {
      toml += line + "\n";
    }
  }
  TrainOptions options;
  Config config;
  bind(config, options);
  config.read_toml(toml, "docs/train-step.md");
  EXPECT_EQ(solved(options.batch).accumulation, 8);
  EXPECT_NO_THROW(check(options.schedule));
}

TEST(TrainOptions, RefuseWhatMakesNoModel) {
  const auto refusal = [](const ModelChoice& choice) {
    TrainOptions described;
    described.model = choice;
    try {
      shape_of(described);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({}), HasSubstr("no model is given"));
  EXPECT_THAT(refusal({.name = "gpt2-124"}), HasSubstr("gpt2-124m"));
  EXPECT_THAT(refusal({.name = "gpt2-124m", .layers = 3}), HasSubstr("already has its sizes"));
  EXPECT_THAT(refusal({.layers = 2, .hidden = 65, .heads = 4}), Not(HasSubstr("say which")));
  TrainOptions options;
  options.model.name = "gpt2-124m";
  options.batch.sequence = 1025;
  EXPECT_THROW(setup_of(options), Error);
  options.batch.sequence = 0;
  EXPECT_EQ(setup_of(options).shape.sequence, 1024);
}

}  // namespace
}  // namespace lockstep::train
