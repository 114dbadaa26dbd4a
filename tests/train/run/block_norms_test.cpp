// The norms of the gradients of each block, that strategies report: those that one worker has.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/train/run/thread_runs.h"

namespace lockstep::train::block_norms_test {
namespace {

constexpr int kSteps = 4;

struct Norms {
  std::vector<std::string> blocks;         // their names
  std::vector<std::vector<double>> parts;  // of the blocks, in each step
  std::vector<double> wholes;
};

class Recorder : public RunObserver {
 public:
  explicit Recorder(Norms& norms) : norms_(norms) {}
  void begin(const RunFacts& facts) override { norms_.blocks = facts.blocks; }
  void step(const StepRecord& record) override {
    norms_.parts.push_back(record.metrics.block_norms);
    norms_.wholes.push_back(record.metrics.gradient_norm);
  }
  void sample(std::int64_t, const std::string&) override {}
  void notice(const std::string&) override {}
  void warning(const std::string&) override {}
  void end(const RunEnd&) override {}

 private:
  Norms& norms_;
};

class BlockNorms : public ThreadRuns {
 protected:
  Norms norms(int ranks, const Settings& more) {
    Norms norms;
    run_ranks(
        ranks, small_run("run" + std::to_string(runs_++), kSteps, more),
        [&](Observers& observers) { observers.push_back(std::make_unique<Recorder>(norms)); });
    EXPECT_EQ(norms.parts.size(), static_cast<std::size_t>(kSteps));
    return norms;
  }

 private:
  int runs_ = 0;
};

void expect_same(const Norms& got, const Norms& want) {
  EXPECT_EQ(got.blocks, want.blocks);
  ASSERT_EQ(got.parts.size(), want.parts.size());
  for (std::size_t step = 0; step < got.parts.size(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step + 1));
    expect_near(got.parts[step], want.parts[step], 1e-4);
  }
}

TEST_F(BlockNorms, AddUpToTheWholeNorm) {
  const Norms one = norms(1, {});
  EXPECT_EQ(one.blocks, (std::vector<std::string>{"embedding", "layer.0", "layer.1", "head"}));
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_EQ(one.parts[step].size(), one.blocks.size());
    double squares = 0;
    for (const double norm : one.parts[step]) squares += norm * norm;
    EXPECT_NEAR(std::sqrt(squares), one.wholes[step], 1e-12 * one.wholes[step]);
  }
}

TEST_F(BlockNorms, AreThoseOfOneWorkerInEveryStrategy) {
  for (const Settings& model : {Settings{"model.family=llama"}, Settings{"model.family=gpt2"}}) {
    const auto with = [&](Settings settings) {
      settings.insert(settings.end(), model.begin(), model.end());
      return settings;
    };
    const Norms one = norms(1, model);
    expect_same(norms(3, model), one);
    for (const char* zero : {"1", "2", "3"}) {
      SCOPED_TRACE(std::string("ZeRO ") + zero);
      expect_same(norms(2, with({std::string("parallel.zero=") + zero})), one);
      expect_same(norms(4, with({std::string("parallel.zero=") + zero, "parallel.pipeline=2"})),
                  one);
    }
    for (const char* pipeline : {"2", "3"}) {
      SCOPED_TRACE(std::string("pipeline ") + pipeline);
      expect_same(norms(std::stoi(pipeline), with({std::string("parallel.pipeline=") + pipeline})),
                  one);
    }
  }
}

TEST_F(BlockNorms, OfUpdatesDuringBackwardAreThoseOfUpdatesAfterIt) {
  const Settings offloaded = {"offload.optimizer=host", "optimizer.max_grad_norm=0"};
  expect_same(norms(1, offloaded), norms(1, {"optimizer.max_grad_norm=0"}));
}

// There a layer is two blocks.
TEST_F(BlockNorms, OfExpertsAreThoseOfAllExperts) {
  const Settings mixtral = {"model.family=mixtral", "model.experts=4"};
  const Norms one = norms(1, mixtral);
  for (const int pipeline : {1, 2}) {
    Settings divided = mixtral;
    divided.emplace_back("parallel.expert=2");
    divided.push_back(fmt::format("parallel.pipeline={}", pipeline));
    const Norms two = norms(2 * pipeline, divided);
    ASSERT_EQ(two.blocks.size(), 6u);
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<double>& parts = two.parts[step];
      ASSERT_EQ(parts.size(), 6u);
      const std::vector<double> layers = {parts[0], std::hypot(parts[1], parts[2]),
                                          std::hypot(parts[3], parts[4]), parts[5]};
      expect_near(layers, one.parts[step], 1e-4);
    }
  }
}

TEST_F(BlockNorms, AreNotKnownInTensorGroups) {
  for (const std::vector<double>& step : norms(2, {"parallel.tensor=2"}).parts) {
    EXPECT_TRUE(step.empty());
  }
}

}  // namespace
}  // namespace lockstep::train::block_norms_test
