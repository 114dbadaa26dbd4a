// The norms of the gradients of each block, that strategies report: those that one worker has.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <span>
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

// The norm of a layer from those of its blocks: of a mixture of experts it has two.
std::vector<double> of_layers(const std::vector<double>& parts) {
  if (parts.size() != 6) return parts;
  return {parts[0], std::hypot(parts[1], parts[2]), std::hypot(parts[3], parts[4]), parts[5]};
}

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
      expect_near(of_layers(two.parts[step]), one.parts[step], 1e-4);
    }
  }
}

TEST_F(BlockNorms, OfTensorGroupsAreThoseOfOneWorker) {
  const Settings mixtral = {"model.family=mixtral", "model.experts=4"};
  const std::pair<int, Settings> meshes[] = {
      {2, {"parallel.tensor=2"}},
      {4, {"parallel.tensor=4", "parallel.sequence=true"}},
      {4, {"parallel.tensor=2", "parallel.zero=2"}},
      {4, {"parallel.tensor=2", "parallel.zero=3", "parallel.sequence=true"}},
      {4, {"parallel.tensor=2", "parallel.pipeline=2"}},
      {2, {"parallel.tensor=2", "offload.optimizer=host", "offload.gradients=host"}},
      {2, {"parallel.tensor=2", "offload.optimizer=file", "offload.gradients=file"}},
      {4,
       {"parallel.tensor=2", "parallel.zero=2", "offload.optimizer=file",
        "offload.gradients=file"}}};
  const std::pair<int, Settings> of_experts[] = {
      {4, {"parallel.tensor=2", "parallel.expert=2"}},
      {4, {"parallel.tensor=2", "parallel.expert=2", "parallel.sequence=true"}},
      {8, {"parallel.tensor=2", "parallel.expert=2", "parallel.zero=2"}}};
  const auto expect_all = [&](const Settings& model,
                              std::span<const std::pair<int, Settings>> all) {
    const Norms one = norms(1, model);
    for (const auto& [ranks, mesh] : all) {
      SCOPED_TRACE(model.front() + ": " + fmt::format("{}", fmt::join(mesh, " ")));
      Settings settings = model;
      settings.insert(settings.end(), mesh.begin(), mesh.end());
      const Norms divided = norms(ranks, settings);
      ASSERT_EQ(divided.parts.size(), one.parts.size());
      for (int step = 0; step < kSteps; ++step) {
        expect_near(of_layers(divided.parts[step]), one.parts[step], 1e-4);
      }
    }
  };
  expect_all({"model.family=gpt2"}, meshes);
  expect_all(with_window(kCappedGemma2), meshes);
  expect_all(mixtral, of_experts);
}

}  // namespace
}  // namespace lockstep::train::block_norms_test
