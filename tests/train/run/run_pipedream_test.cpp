// Whole runs of PipeDream-2BW, as threads: they have the bits of a plain loop on one worker whose
// gradients are those of the parameters before the latest update, wherever steps are cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/offload/local_update.h"
#include "lockstep/parallel/offload/tier_mover.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/state_tensors.h"
#include "lockstep/train/run/resolve.h"
#include "lockstep/train/run/start.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train::run_pipedream_test {
namespace {

using ::testing::HasSubstr;
using Tensors = std::map<std::string, std::vector<float>>;

const Settings kLlama = {"model.family=llama", "model.layers=4", "model.dropout=0.1"};
const Settings kUntiedGpt2 = {"model.family=gpt2", "model.tie_word_embeddings=false",
                              "model.layers=4"};

Settings with(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

struct Learned {
  std::vector<double> losses, norms, rates;
  std::vector<double> staleness;
  Tensors states;
};

// Keeps what a run reports, to the bit.
class Keeper : public RunObserver {
 public:
  explicit Keeper(Learned& learned) : learned_(learned) {}
  void begin(const RunFacts&) override {}
  void step(const StepRecord& record) override {
    learned_.losses.push_back(record.metrics.loss);
    learned_.norms.push_back(record.metrics.gradient_norm);
    learned_.rates.push_back(record.metrics.rate);
    learned_.staleness.push_back(record.workers ? record.workers->staleness : -1);
    EXPECT_EQ(record.metrics.step, static_cast<std::int64_t>(learned_.losses.size()) + skipped_);
  }
  void sample(std::int64_t, const std::string&) override {}
  void notice(const std::string& text) override { notices += text + "\n"; }
  void warning(const std::string&) override {}
  void end(const RunEnd&) override {}

  std::string notices;
  int skipped_ = 0;  // steps of an earlier process

 private:
  Learned& learned_;
};

// One worker, W(t+1) = W(t) - rate * gradient at W(t-1): the gradients of every step with the
// parameters before, then the update of the present ones.
class PlainLoop {
 public:
  PlainLoop(const Settings& settings, const std::filesystem::path& cache) {
    RunSettings given;
    for (const std::string& one : settings) given.config.set(one);
    const RunSettings planned = plan_job(given, {.workers = 1});
    data_ = open_dataset(planned.options.data, cache);
    options_ = with_data(planned.options.train, data_);
    options_.recompute = RecomputeChoice::kNone;
    steps_ = planned.options.steps;
    ops_ = make_cpu_ops(1);
  }

  Learned run() {
    nn::Model model = model_of(options_);
    nn::MemoryPlan plan =
        nn::plan_memory(model, setup_of(options_), *ops_, optimizer_state_of(options_));
    nn::Replica replica(std::move(model), std::move(plan), *ops_);
    replica.initialise(static_cast<std::uint64_t>(options_.seed));
    const auto source = make_source(options_, data_, replica.setup().shape);
    parallel::TierMover mover;
    parallel::Trace trace;
    mover.start(replica, trace);
    const Tensor& parameters = replica.states().parameters;
    const Buffer latest(parameters.bytes()), previous(parameters.bytes());
    const auto in = [&](const Buffer& buffer) {
      return buffer.tensor(parameters.dtype(), parameters.shape());
    };
    copy(in(previous), parameters);
    Learned learned;
    for (int step = 1; step <= steps_; ++step) {
      copy(in(latest), parameters);
      copy(parameters, in(previous));
      learned.losses.push_back(accumulate(replica, *source, step));
      copy(parameters, in(latest));
      copy(in(previous), in(latest));
      const double rate = optim::learning_rate_at(options_.schedule, step);
      const auto result = parallel::local_update(
          replica, mover, {.optimizer = options_.optimizer, .updates = step - 1, .rate = rate});
      learned.norms.push_back(result.gradient_norm);
      learned.rates.push_back(rate);
    }
    for (const io::NamedTensor& one : state_tensors(replica.flat(), replica.states())) {
      const auto values = one.tensor.as<const float>();
      learned.states[one.name] = {values.begin(), values.end()};
    }
    return learned;
  }

 private:
  double accumulate(nn::Replica& replica, BatchSource& source, int step) {
    const parallel::StepPlan plan = step_plan(options_.batch);
    const auto batches = source.training(static_cast<std::uint64_t>((step - 1) * plan.sequences),
                                         static_cast<int>(plan.micro_batches()));
    std::int64_t targets = 0;
    for (const nn::Batch& batch : batches) targets += nn::count_targets(batch);
    replica.zero_gradients();
    double loss = 0;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      loss += nn::sum_of(replica.forward_backward(
          batches[i], {.seed = static_cast<std::uint64_t>(options_.seed),
                       .step = static_cast<std::uint64_t>(step),
                       .first_sequence = i * static_cast<std::uint64_t>(plan.micro),
                       .loss_factor = static_cast<float>(1.0 / static_cast<double>(targets))}));
    }
    return loss / static_cast<double>(targets);
  }

  Dataset data_;
  TrainOptions options_;
  int steps_ = 0;
  std::unique_ptr<Ops> ops_;
};

struct Mesh {
  int data = 1;
  int pipeline = 2;
  int tensor = 1;
  std::string schedule = "pipedream_2bw";
  int ranks() const { return data * pipeline * tensor; }
};

class RunPipeDream : public ThreadRuns {
 protected:
  Learned run(const std::string& dir, const Mesh& mesh, int steps, const Settings& more = {},
              int done = 0) {
    Learned learned;
    const Settings settings =
        with(small_run(dir, steps, more), {"parallel.tensor=" + std::to_string(mesh.tensor),
                                           "parallel.pipeline=" + std::to_string(mesh.pipeline),
                                           "parallel.pipeline_schedule=" + mesh.schedule});
    run_ranks(mesh.ranks(), settings, [&](Observers& observers) {
      auto keeper = std::make_unique<Keeper>(learned);
      keeper->skipped_ = done;
      observers.push_back(std::move(keeper));
    });
    learned.states = states_of(dir);
    return learned;
  }

  Learned plain_loop(int steps, const Settings& more) {
    return PlainLoop(small_run("plain", steps, more), folder / "cache").run();
  }

  Tensors states_of(const std::string& dir) const {
    const auto file = open_states(open_checkpoint(folder / dir, {}));
    Tensors states;
    for (const std::string_view name : file->names()) {
      const Shape shape = file->find(name)->shape;
      std::vector<float>& values = states[std::string(name)];
      values.resize(shape.elements());
      file->read(name, tensor_of(std::span(values), shape));
    }
    return states;
  }

  std::string error_of(const Mesh& mesh, const Settings& more) {
    try {
      run("refused", mesh, 2, more);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

void expect_states_of(const Learned& got, const Learned& want) {
  for (const auto& [name, values] : want.states) {
    ASSERT_TRUE(got.states.contains(name)) << name;
    EXPECT_EQ(got.states.at(name), values) << name;
  }
}

void expect_bits(const Learned& got, const Learned& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
  EXPECT_EQ(got.rates, want.rates);
  expect_states_of(got, want);
}

TEST_F(RunPipeDream, HasTheBitsOfAPlainLoopWithParametersOneUpdateOld) {
  int number = 0;
  for (const Settings& model : {kLlama, kUntiedGpt2}) {
    const Learned want = plain_loop(12, model);
    for (const int stages : {2, 3, 4}) {
      // Where a validation cuts the steps.
      for (const std::string every : {"0", "1", "5"}) {
        SCOPED_TRACE(model.front() + fmt::format(", {} stages, validates every {}", stages, every));
        const Learned got = run("run" + std::to_string(number++), {.pipeline = stages}, 12,
                                with(model, {"train.validate_every=" + every}));
        expect_bits(got, want);
      }
    }
  }
}

TEST_F(RunPipeDream, AnyNumberOfMicroBatchesHasTheBitsOfThePlainLoop) {
  const struct {
    int stages;
    std::string micro;  // sequences of 8
  } cases[] = {{2, "8"}, {2, "4"}, {3, "4"}, {4, "1"}, {6, "1"}};
  int number = 0;
  for (const auto& [stages, micro] : cases) {
    SCOPED_TRACE(fmt::format("{} stages, micro-batches of {}", stages, micro));
    const Settings settings = with(kLlama, {"train.micro_batch_size=" + micro});
    expect_bits(run("run" + std::to_string(number++), {.pipeline = stages}, 9,
                    with(settings, {"train.validate_every=0"})),
                plain_loop(9, settings));
  }
}

TEST_F(RunPipeDream, HalfPrecisionAndRecomputationKeepTheBits) {
  const Settings bf16 = with(kLlama, {"train.precision=bf16"});
  const Learned want = plain_loop(8, bf16);
  for (const std::string mode : {"none", "selective", "full"}) {
    SCOPED_TRACE(mode);
    expect_bits(run(mode, {.pipeline = 3}, 8,
                    with(bf16, {"train.recompute=" + mode, "train.validate_every=0"})),
                want);
  }
}

TEST_F(RunPipeDream, SgdWithoutClippingHasTheBitsOfThePlainLoop) {
  const Settings sgd =
      with(kLlama, {"optimizer.kind=sgd", "optimizer.max_grad_norm=0", "schedule.warmup_steps=3"});
  expect_bits(run("sgd", {.pipeline = 3}, 8, sgd), plain_loop(8, sgd));
}

// A shared table adds up in another order; tensor groups and workers sum in another one, too.
TEST_F(RunPipeDream, EveryMeshFollowsThePlainLoop) {
  // Late gradients at a high learning rate turn rounding errors into other norms.
  const Settings slow = {"model.layers=4", "optimizer.learning_rate=0.001"};
  int number = 0;
  for (const Settings& model :
       {with({"model.family=llama"}, slow), with({"model.family=gpt2"}, slow)}) {
    const Learned want = plain_loop(20, model);
    for (const Mesh& mesh :
         {Mesh{.pipeline = 3}, Mesh{.data = 2, .pipeline = 2}, Mesh{.data = 2, .pipeline = 3},
          Mesh{.pipeline = 2, .tensor = 2}, Mesh{.data = 2, .pipeline = 2, .tensor = 2}}) {
      SCOPED_TRACE(model.front() + fmt::format(", data {}, pipeline {}, tensor {}", mesh.data,
                                               mesh.pipeline, mesh.tensor));
      const Learned got = run("run" + std::to_string(number++), mesh, 20, model);
      expect_near(got.losses, want.losses, 1e-5);
      expect_near(got.norms, want.norms, 1e-4);
    }
  }
}

TEST_F(RunPipeDream, EveryFamilyFollowsThePlainLoop) {
  std::ofstream pairs(folder / "pairs.tsv");
  for (int i = 0; i < 200; ++i) pairs << "the fox " << i << "\tle renard " << i << "\n";
  pairs.close();
  const auto translation = [&](const std::string& family) -> Settings {
    return {"model.family=" + family, "data.text=", "data.pairs=" + (folder / "pairs.tsv").string(),
            "data.tokenizer=bpe", "data.bpe_vocabulary=280"};
  };
  int number = 0;
  for (const Settings& model :
       {Settings{"model.family=bert"}, translation("encoder-decoder"), translation("t5"),
        with_window(kCappedGemma2),
        Settings{"model.family=mixtral", "model.experts=5", "model.router_loss=0.1"}}) {
    SCOPED_TRACE(model.front());
    const Settings settings = with(model, {"optimizer.learning_rate=0.001"});
    const Learned want = plain_loop(12, settings);
    const Learned got = run("run" + std::to_string(number++), {.pipeline = 3}, 12, settings);
    expect_near(got.losses, want.losses, 1e-5);
    expect_near(got.norms, want.norms, 1e-4);
  }
}

// With data parallelism, too, no bit depends on where the pipeline is emptied.
TEST_F(RunPipeDream, WhereStepsAreCutChangesNoBit) {
  const Settings tied = {"model.family=gpt2", "model.layers=4"};
  for (const Mesh& mesh : {Mesh{.data = 2, .pipeline = 2}, Mesh{.pipeline = 2, .tensor = 2}}) {
    const std::string name = std::to_string(mesh.data);
    const Learned never = run("never" + name, mesh, 10, with(tied, {"train.validate_every=0"}));
    expect_bits(run("always" + name, mesh, 10, with(tied, {"train.validate_every=1"})), never);
    expect_bits(
        run("saved" + name, mesh, 10, with(tied, {"train.validate_every=0", "checkpoint.every=3"})),
        never);
  }
}

TEST_F(RunPipeDream, IsNotTheTrainingOfOneFOneB) {
  const Learned late = run("late", {.pipeline = 2}, 6, kLlama);
  const Learned now = run("now", {.pipeline = 2, .schedule = "1f1b"}, 6, kLlama);
  EXPECT_EQ(late.losses[0], now.losses[0]);
  EXPECT_NE(late.losses[1], now.losses[1]);
}

TEST_F(RunPipeDream, AResumedRunContinuesToTheBit) {
  for (const std::string precision : {"f32", "bf16"}) {
    const Settings settings = with(kLlama, {"train.precision=" + precision,
                                            "train.validate_every=0", "schedule.decay=constant"});
    const Learned want = run("whole-" + precision, {.pipeline = 3}, 12, settings);
    for (const int cut : {1, 2, 7}) {
      SCOPED_TRACE(fmt::format("{}, cut after {}", precision, cut));
      const std::string dir = precision + std::to_string(cut);
      run(dir, {.pipeline = 3}, cut, settings);
      const Learned rest = run(dir, {.pipeline = 2}, 12, settings, cut);  // on another mesh
      EXPECT_EQ(rest.losses, std::vector(want.losses.begin() + cut, want.losses.end()));
      EXPECT_EQ(rest.norms, std::vector(want.norms.begin() + cut, want.norms.end()));
      EXPECT_EQ(rest.states, want.states);
    }
  }
}

// A signal comes while forwards of the next step are done: that step is completed and saved.
TEST_F(RunPipeDream, AnInterruptedRunContinuesToTheBit) {
  class Interrupts : public Keeper {
   public:
    Interrupts(Learned& learned, int when) : Keeper(learned), when_(when) {}
    void step(const StepRecord& record) override {
      Keeper::step(record);
      if (record.metrics.step == when_) ::raise(SIGTERM);
    }

   private:
    int when_;
  };
  for (const Mesh& mesh :
       {Mesh{.pipeline = 3}, Mesh{.data = 2, .pipeline = 2}, Mesh{.pipeline = 2, .tensor = 2}}) {
    const Settings settings = with(kLlama, {"train.validate_every=0", "schedule.decay=constant"});
    const std::string name = std::to_string(mesh.ranks()) + std::to_string(mesh.data);
    const Learned want = run("whole" + name, mesh, 12, settings);
    for (const int when : {1, 2, 6}) {
      SCOPED_TRACE(fmt::format("{} ranks, stopped after {}", mesh.ranks(), when));
      const std::string dir = "stopped" + name + std::to_string(when);
      Learned first;
      run_ranks(
          mesh.ranks(),
          with(small_run(dir, 12, settings), {"parallel.tensor=" + std::to_string(mesh.tensor),
                                              "parallel.pipeline=" + std::to_string(mesh.pipeline),
                                              "parallel.pipeline_schedule=pipedream_2bw"}),
          [&](Observers& observers) {
            observers.push_back(std::make_unique<Interrupts>(first, when));
          });
      const auto done = static_cast<int>(first.losses.size());
      EXPECT_GT(done, when);
      EXPECT_LT(done, 12);
      const Learned rest = run(dir, mesh, 12, settings, done);
      first.losses.insert(first.losses.end(), rest.losses.begin(), rest.losses.end());
      first.norms.insert(first.norms.end(), rest.norms.begin(), rest.norms.end());
      EXPECT_EQ(first.losses, want.losses);
      EXPECT_EQ(first.norms, want.norms);
      EXPECT_EQ(rest.states, want.states);
    }
  }
}

// Also while others agree on a norm, or wait for messages of the next step.
TEST_F(RunPipeDream, ARankThatFailsEndsTheOthers) {
  class Fails : public Keeper {
   public:
    Fails(Learned& learned, int when) : Keeper(learned), when_(when) {}
    void step(const StepRecord& record) override {
      if (record.metrics.step == when_) fail(ErrorCode::kSystem, "this rank fails");
    }

   private:
    int when_;
  };
  for (const Mesh& mesh : {Mesh{.pipeline = 3}, Mesh{.data = 2, .pipeline = 2, .tensor = 2}}) {
    for (const int when : {1, 4}) {
      Learned learned;
      EXPECT_THROW(run_ranks(mesh.ranks(),
                             with(small_run("failed", 12, with(kLlama, {"train.validate_every=0"})),
                                  {"parallel.tensor=" + std::to_string(mesh.tensor),
                                   "parallel.pipeline=" + std::to_string(mesh.pipeline),
                                   "parallel.pipeline_schedule=pipedream_2bw"}),
                             [&](Observers& observers) {
                               observers.push_back(std::make_unique<Fails>(learned, when));
                             }),
                   Error);
    }
  }
}

// A checkpoint of another schedule has no version before its parameters: the first step is not
// stale. The other schedules leave it aside.
TEST_F(RunPipeDream, ContinuesFromAndIntoOtherSchedules) {
  run("run", {.pipeline = 2, .schedule = "1f1b"}, 3, kLlama);
  const Learned late = run("run", {.pipeline = 2}, 6, kLlama, 3);
  EXPECT_EQ(late.staleness, (std::vector<double>{0, 1, 1}));
  EXPECT_TRUE(late.states.contains("previous/layer.0.attention.qkv.weight"));
  const Learned now = run("run", {.pipeline = 2, .schedule = "1f1b"}, 8, kLlama, 6);
  EXPECT_EQ(now.losses.size(), 2u);
  EXPECT_EQ(now.states.size() * 4, late.states.size() * 3);
}

TEST_F(RunPipeDream, ReportsItsStaleness) {
  Learned learned;
  std::string notices;
  class Notices : public Keeper {
   public:
    Notices(Learned& learned, std::string& all) : Keeper(learned), all_(all) {}
    void notice(const std::string& text) override { all_ += text + "\n"; }

   private:
    std::string& all_;
  };
  run_ranks(
      2,
      small_run("run", 5,
                with(kLlama, {"parallel.pipeline=2", "parallel.pipeline_schedule=pipedream_2bw"})),
      [&](Observers& observers) {
        observers.push_back(std::make_unique<Notices>(learned, notices));
      });
  EXPECT_EQ(learned.staleness, (std::vector<double>{0, 1, 1, 1, 1}));
  EXPECT_THAT(notices, HasSubstr("two versions of its parameters"));
  EXPECT_THAT(notices, HasSubstr("staleness 1"));
}

TEST_F(RunPipeDream, StagesSendAnActivationAndAGradientForEveryMicroBatch) {
  run("run", {.pipeline = 3}, 6, with(kLlama, {"train.validate_every=0"}));
  std::uint64_t sent = 0;
  read_metrics(folder / "run", [&](const StepRecord& record) {
    ASSERT_TRUE(record.workers);
    sent += record.workers->bytes_sent;
  });
  // Two boundaries, two directions, four micro-batches of [2 x 8 tokens, 32]. What stages agree on
  // is numbers.
  EXPECT_EQ(sent, 6 * 2 * 2 * 4 * (2 * 8) * 32 * sizeof(float));
}

TEST_F(RunPipeDream, TheSourceOfNaNIsNamed) {
  for (const std::string every : {"0", "1"}) {
    const std::string error =
        error_of({.pipeline = 2}, with(kLlama, {"optimizer.learning_rate=1e30", "train.steps=20",
                                                "train.validate_every=" + every}));
    EXPECT_THAT(error, HasSubstr("block "));
    EXPECT_THAT(error, HasSubstr("(at rank "));
  }
}

TEST_F(RunPipeDream, WhatDoesNotGoWithItIsRefused) {
  const auto of = [](const std::string& setting) { return Settings{setting}; };
  const std::string by = " is not supported with parallel.pipeline_schedule = \"pipedream_2bw\"";
  EXPECT_THAT(error_of({.data = 2}, of("parallel.zero=1")), HasSubstr("parallel.zero = 1" + by));
  EXPECT_THAT(error_of({.data = 2}, of("parallel.context=2")),
              HasSubstr("parallel.context = 2" + by));
  EXPECT_THAT(error_of({.data = 2}, {"model.family=mixtral", "parallel.expert=2"}),
              HasSubstr("parallel.expert = 2" + by));
  EXPECT_THAT(error_of({}, of("parallel.reduction=tree")),
              HasSubstr("parallel.reduction = \"tree\"" + by));
  EXPECT_THAT(error_of({}, of("train.precision=f16")), HasSubstr("train.precision = \"f16\"" + by));
  EXPECT_THAT(error_of({}, of("offload.optimizer=host")), HasSubstr("offload.*" + by));
  EXPECT_THAT(error_of({.pipeline = 4}, {"model.layers=4", "train.micro_batch_size=4"}),
              HasSubstr("needs 3 micro-batches or more on 4 stages, not 2"));
  EXPECT_FALSE(std::filesystem::exists(folder / "refused" / "checkpoints"));
}

}  // namespace
}  // namespace lockstep::train::run_pipedream_test
