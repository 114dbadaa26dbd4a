// Whole runs that offload states of divided models, as threads: with the bits of the same mesh
// without offload, in any tier.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train::run_mesh_offload_test {
namespace {

using ::testing::HasSubstr;

Settings operator+(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

struct Mesh {
  int ranks = 1;
  Settings settings;
  std::string text() const { return fmt::format("{}", fmt::join(settings, " ")); }
};

const Settings kGpt2 = {"model.family=gpt2"};
const Settings kLlama = {"model.family=llama"};
const Settings kMixtral = {"model.family=mixtral", "model.experts=4", "model.feed_forward=24",
                           "model.router_loss=0.1"};

const Settings kOptimizer = {"offload.optimizer=host"};
const Settings kOptimizerFile = {"offload.optimizer=file"};
const Settings kZeroOffload = {"offload.optimizer=host", "offload.gradients=host"};
const Settings kHost = {"offload.optimizer=host", "offload.gradients=host",
                        "offload.parameters=host", "offload.activations=host"};
const Settings kFile = {"offload.optimizer=file", "offload.gradients=file",
                        "offload.parameters=file", "offload.activations=file"};

// Without data parallelism, or with all states sharded: all tiers.
const Mesh kMeshes[] = {
    {2, {"parallel.tensor=2"}},
    {4, {"parallel.tensor=4", "parallel.sequence=true"}},
    {4, {"parallel.tensor=2", "parallel.zero=3"}},
    {4, {"parallel.tensor=2", "parallel.zero=3", "parallel.sequence=true"}},
    {4, {"parallel.tensor=2", "parallel.zero=3", "parallel.partition=layer"}},
    {2, {"parallel.context=2", "parallel.zero=3"}},
    {4, {"parallel.context=2", "parallel.zero=3", "parallel.tensor=2"}},
};
// Several workers with whole parameters, which are in memory.
const Mesh kWholeParameters[] = {
    {4, {"parallel.tensor=2"}},
    {4, {"parallel.tensor=2", "parallel.zero=1"}},
    {4, {"parallel.tensor=2", "parallel.zero=2"}},
    // Without overlap, because then a table's rows are added up in the order of a bucket.
    {2, {"parallel.context=2", "parallel.overlap=false"}},
    {2, {"parallel.context=2", "parallel.zero=1"}},
    {4, {"parallel.context=2", "parallel.zero=2"}},
};
const Mesh kExpertMeshes[] = {
    {2, {"parallel.expert=2"}},
    {2, {"parallel.expert=2", "parallel.zero=1"}},
    {2, {"parallel.expert=2", "parallel.zero=3"}},
    {4, {"parallel.expert=2", "parallel.zero=2"}},
    {4, {"parallel.expert=2", "parallel.tensor=2"}},
};
const Mesh kPipelines[] = {
    {2, {"parallel.pipeline=2"}},
    {2, {"parallel.pipeline=2", "parallel.pipeline_schedule=zb_h1"}},
    {2, {"parallel.pipeline=2", "parallel.pipeline_schedule=interleaved"}},
    {4, {"parallel.pipeline=2"}},
    {4, {"parallel.pipeline=2", "parallel.zero=1"}},
    {4, {"parallel.pipeline=2", "parallel.zero=3"}},
    {4, {"parallel.pipeline=2", "parallel.tensor=2", "parallel.sequence=true"}},
    {4, {"parallel.pipeline=2", "parallel.context=2", "parallel.zero=1"}},
};

class RunMeshOffload : public ThreadRuns {
 protected:
  std::string run(int ranks, const Settings& settings, int steps = 3) {
    const std::string dir = fmt::format("run{}", runs_++);
    run_in(dir, ranks, settings, steps);
    return dir;
  }
  void run_in(const std::string& dir, int ranks, const Settings& settings, int steps) const {
    run_ranks(ranks, small_run(dir, steps, Settings{"train.validate_every=3"} + settings));
  }

  void expect_no_bit_changes(const Settings& model, const Mesh& mesh,
                             const std::vector<Settings>& tiers) {
    const std::string without = run(mesh.ranks, model + mesh.settings);
    for (const Settings& each : tiers) {
      SCOPED_TRACE(fmt::format("{}: {} {}", model.front(), mesh.text(), fmt::join(each, " ")));
      expect_same_bits(run(mesh.ranks, model + mesh.settings + each), without);
    }
  }

 private:
  int runs_ = 0;
};

TEST_F(RunMeshOffload, ChangesNoBit) {
  for (const Mesh& mesh : kMeshes) {
    expect_no_bit_changes(kGpt2, mesh, {kHost, kFile});
  }
  expect_no_bit_changes(kLlama, kMeshes[0], {kOptimizer, kZeroOffload});
  for (const Mesh& mesh : kWholeParameters) {
    expect_no_bit_changes(kLlama, mesh, {kHost, kOptimizerFile});
  }
}

TEST_F(RunMeshOffload, OfExpertsChangesNoBit) {
  for (const Mesh& mesh : kExpertMeshes) {
    expect_no_bit_changes(kMixtral, mesh, {kZeroOffload, kHost, kOptimizerFile});
  }
}

TEST_F(RunMeshOffload, OfStagesChangesNoBit) {
  for (const Mesh& mesh : kPipelines) {
    expect_no_bit_changes(kLlama, mesh, {kOptimizer, kOptimizerFile});
  }
  expect_no_bit_changes(kGpt2, kPipelines[0], {kOptimizer});  // stages share its table
  const Mesh experts = {4, {"parallel.pipeline=2", "parallel.expert=2"}};
  expect_no_bit_changes(kMixtral, experts, {kOptimizer, kOptimizerFile});
}

TEST_F(RunMeshOffload, ChangesNoBitInAnyPrecisionAndRecomputation) {
  const Mesh groups = {4, {"parallel.tensor=2", "parallel.zero=2"}};
  const Mesh stages = {4, {"parallel.pipeline=2", "parallel.tensor=2"}};
  for (const std::string precision : {"bf16", "f16"}) {
    for (const std::string recompute : {"none", "full"}) {
      const Settings model =
          kLlama + Settings{"train.precision=" + precision, "train.recompute=" + recompute};
      expect_no_bit_changes(model, groups, {kZeroOffload, kOptimizerFile});
      expect_no_bit_changes(model, stages, {kOptimizer, kOptimizerFile});
    }
  }
}

// Updates during backward need a model that no group divides, so here they come after it.
TEST_F(RunMeshOffload, WithoutClippingChangesNoBit) {
  const Settings unclipped = {"optimizer.max_grad_norm=0"};
  for (const Mesh& mesh : {kMeshes[0], kMeshes[2], kPipelines[0]}) {
    expect_no_bit_changes(kLlama + unclipped, mesh, {kOptimizer, kOptimizerFile});
  }
  expect_no_bit_changes(kMixtral + unclipped, kExpertMeshes[0], {kOptimizer, kZeroOffload});
}

TEST_F(RunMeshOffload, OfADelayedUpdateFollowsOneWorkers) {
  const Settings delayed =
      kLlama + kZeroOffload + Settings{"offload.delayed_update=true", "train.precision=bf16"};
  const std::string one = run(1, delayed, 8);
  const std::string two = run(2, delayed + Settings{"parallel.tensor=2"}, 8);
  expect_near(curve(two).losses, curve(one).losses, 0.01);
}

TEST_F(RunMeshOffload, CheckpointsMoveBetweenMeshesAndTiers) {
  const Mesh meshes[] = {
      {4, Settings{"parallel.tensor=2", "parallel.zero=2"} + kOptimizerFile},
      {2, Settings{"parallel.pipeline=2"} + kOptimizer},
      {2, Settings{"parallel.context=2"} + kZeroOffload},
      {1, kFile},
      {4, Settings{"parallel.pipeline=2", "parallel.tensor=2"} + kOptimizerFile},
      {2, {}},
  };
  run_in("whole", 1, kLlama, 12);
  constexpr std::size_t kCount = std::size(meshes);
  for (std::size_t i = 0; i < kCount; ++i) {
    const Mesh& first = meshes[i];
    const Mesh& second = meshes[(i + 1) % kCount];
    SCOPED_TRACE(first.text() + " to " + second.text());
    const std::string dir = fmt::format("moved{}", i);
    run_in(dir, first.ranks, kLlama + first.settings, 6);
    run_in(dir, second.ranks, kLlama + second.settings, 12);
    expect_near(curve(dir).losses, curve("whole").losses, 1e-5);
    expect_near(curve(dir).norms, curve("whole").norms, 1e-4);
  }
}

TEST_F(RunMeshOffload, AnOverflowSkipsTheStepOnAllRanks) {
  const Settings f16 = kLlama + Settings{"train.precision=f16", "loss_scale.initial=1e9"};
  for (const Mesh& mesh : {kMeshes[0], kPipelines[0]}) {
    const std::string dir = run(mesh.ranks, f16 + mesh.settings + kOptimizer, 12);
    int skipped = 0;
    read_metrics(folder / dir,
                 [&](const StepRecord& record) { skipped += record.metrics.skipped ? 1 : 0; });
    EXPECT_GT(skipped, 0);
    EXPECT_LT(skipped, 12);
  }
}

}  // namespace
}  // namespace lockstep::train::run_mesh_offload_test
