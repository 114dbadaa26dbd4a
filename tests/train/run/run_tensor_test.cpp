// Whole runs on meshes of data parallelism, ZeRO and tensor groups, as threads: losses and gradient
// norms are those of one worker, and checkpoints move between meshes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/model_io/interchange.h"
#include "lockstep/train/model_io/saved_model.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train::run_tensor_test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

struct Mesh {
  int data = 1;
  int tensor = 1;
  int zero = 0;
  bool sequence = false;
  int ranks() const { return data * tensor; }
  std::string text() const {
    return "data " + std::to_string(data) + ", tensor " + std::to_string(tensor) + ", ZeRO " +
           std::to_string(zero) + (sequence ? ", sequence" : "");
  }
};

class RunTensor : public ThreadRuns {
 protected:
  void run(const std::string& dir, const Mesh& mesh, int steps, const Settings& more = {}) const {
    Settings settings = {"parallel.tensor=" + std::to_string(mesh.tensor),
                         "parallel.zero=" + std::to_string(mesh.zero),
                         "parallel.sequence=" + std::string(mesh.sequence ? "true" : "false")};
    settings.insert(settings.end(), more.begin(), more.end());
    run_ranks(mesh.ranks(), small_run(dir, steps, settings));
  }
};

constexpr Mesh kMeshes[] = {{1, 2, 0}, {1, 4, 0}, {2, 2, 0}, {2, 2, 1},       {2, 2, 2},
                            {2, 2, 3}, {3, 2, 3}, {2, 4, 2}, {1, 4, 0, true}, {2, 2, 3, true}};

TEST_F(RunTensor, LossesAndNormsOfEveryMeshAreThoseOfOneWorker) {
  int number = 0;
  for (const std::string family : {"gpt2", "llama", "bert", "mixtral", "gemma2"}) {
    const Settings model = family == "gemma2" ? kCappedGemma2 : Settings{"model.family=" + family};
    const std::string one = "one" + std::to_string(number);
    run(one, {}, 20, model);
    const Curve alone = curve(one);
    ASSERT_EQ(alone.losses.size(), 20u);
    for (const Mesh& mesh : kMeshes) {
      if (family != "gpt2" && mesh.zero < 3 && !mesh.sequence) continue;
      SCOPED_TRACE(family + ": " + mesh.text());
      const std::string dir = "mesh" + std::to_string(number++);
      run(dir, mesh, 20, model);
      expect_near(curve(dir), alone, 1e-5);
    }
  }
}

TEST_F(RunTensor, HalfPrecisionFollowsOneWorker) {
  for (const std::string precision : {"bf16", "f16"}) {
    const std::vector<std::string> settings = {"train.precision=" + precision,
                                               "model.family=llama"};
    run("one-" + precision, {}, 6, settings);
    run("mesh-" + precision, {2, 2, 2}, 6, settings);
    expect_near(curve("mesh-" + precision).losses, curve("one-" + precision).losses, 0.01);
  }
}

TEST_F(RunTensor, ARunIsTheSameToTheBit) {
  const std::vector<std::string> dropout = {"model.dropout=0.1"};
  run("first", {2, 2, 3}, 6, dropout);
  run("second", {2, 2, 3}, 6, dropout);
  EXPECT_EQ(curve("first").losses, curve("second").losses);
  EXPECT_EQ(curve("first").norms, curve("second").norms);
}

// Saved on one mesh, continued on others.
TEST_F(RunTensor, CheckpointsMoveBetweenMeshes) {
  run("whole", {}, 12);
  const Curve whole = curve("whole");
  const Mesh from[] = {{2, 2, 0}, {1, 4, 0, true}, {2, 2, 3}, {1, 1, 0}};
  const Mesh to[] = {{1, 1, 0}, {2, 2, 2}, {1, 4, 0}, {4, 1, 3}};
  int number = 0;
  for (const Mesh& first : from) {
    for (const Mesh& second : to) {
      if (first.tensor == 1 && second.tensor == 1) continue;
      SCOPED_TRACE(first.text() + " to " + second.text());
      const std::string dir = "moved" + std::to_string(number++);
      run(dir, first, 6);
      run(dir, second, 12);
      const Curve moved = curve(dir);
      expect_near(moved.losses, whole.losses, 1e-5);
      expect_near(moved.norms, whole.norms, 1e-4);
    }
  }
}

// The states of all meshes are the same logical tensors.
TEST_F(RunTensor, CheckpointsHoldLogicalTensors) {
  run("one", {}, 2);
  run("mesh", {2, 2, 2}, 2);
  const auto states_of = [&](const std::string& dir) {
    return open_states(open_checkpoint(folder / dir, {}));
  };
  const auto one = states_of("one");
  const auto mesh = states_of("mesh");
  ASSERT_EQ(one->names().size(), mesh->names().size());
  for (const std::string_view name : one->names()) {
    SCOPED_TRACE(name);
    ASSERT_NE(mesh->find(name), nullptr);
    ASSERT_EQ(mesh->find(name)->shape, one->find(name)->shape);
    const std::size_t elements = one->find(name)->shape.elements();
    std::vector<float> a(elements), b(elements);
    one->read(name, tensor_of(std::span(a), one->find(name)->shape));
    mesh->read(name, tensor_of(std::span(b), one->find(name)->shape));
    for (std::size_t i = 0; i < elements; ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << i;
  }
}

// However a run divided its model, what is loaded from it is whole.
TEST_F(RunTensor, ModelsOfAMeshAreGeneratedFromAndExportedWhole) {
  run("one", {}, 2);
  run("mesh", {1, 2, 0, true}, 2);
  const auto ops = make_reference_ops();
  const SavedModel one = open_model(folder / "one", {});
  const SavedModel mesh = open_model(folder / "mesh", {});
  const nn::Weights a = load_weights(one, DType::kF32, *ops);
  const nn::Weights b = load_weights(mesh, DType::kF32, *ops);
  const auto want = a.buffer().as<const float>();
  const auto got = b.buffer().as<const float>();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << i;
  export_hugging_face(folder / "mesh", folder / "exported", {}, {});
  EXPECT_TRUE(fs::exists(folder / "exported" / "config.json"));
}

TEST_F(RunTensor, AStepReportsWhatTensorGroupsSend) {
  run("run", {1, 2, 0}, 3);
  int steps = 0;
  read_metrics(folder / "run", [&](const StepRecord& record) {
    ASSERT_TRUE(record.workers);
    // Ten sums of [tokens, hidden] in a micro-batch; of two ranks, as many bytes for each.
    const double sums = 10 * 4.0 * (2 * 8) * 32 * sizeof(float);
    EXPECT_GE(static_cast<double>(record.workers->bytes_sent), sums);
    EXPECT_GT(record.workers->exposed_seconds, 0);
    ++steps;
  });
  EXPECT_EQ(steps, 3);
}

TEST_F(RunTensor, WhatCannotBeDividedIsRefused) {
  const auto error_of = [&](const Mesh& mesh, const std::vector<std::string>& more) -> std::string {
    try {
      run("refused", mesh, 2, more);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of({1, 3, 0}, {}), HasSubstr("3 ranks cannot divide a model of 4 heads"));
  EXPECT_THAT(error_of({1, 2, 0}, {"parallel.tensor=4"}),
              HasSubstr("parallel.tensor = 4 does not divide the 2 ranks of this job"));
  EXPECT_THAT(error_of({1, 1, 0}, {"parallel.tensor=2"}),
              HasSubstr("parallel.tensor = 2 does not divide the 1 rank"));
  EXPECT_THAT(error_of({1, 1, 0, true}, {}), HasSubstr("parallel.sequence = true"));
  EXPECT_THAT(error_of({1, 4, 0, true}, {"train.seq_len=7", "train.micro_batch_size=1"}),
              HasSubstr("4 ranks cannot divide the 7 tokens of a micro-batch"));
  EXPECT_THAT(error_of({2, 2, 0}, {"parallel.compression=int8"}),
              HasSubstr("parallel.compression = \"int8\" is not supported with parallel.tensor"));
  EXPECT_FALSE(fs::exists(folder / "refused" / "checkpoints"));
}

}  // namespace
}  // namespace lockstep::train::run_tensor_test
