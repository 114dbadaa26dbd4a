// Whole runs on a GPU, ranks as threads that share it: pipelines, ZeRO and offload have the losses
// of one worker, and checkpoints move between CPUs and GPUs, whatever the number of ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/observe/metrics_line.h"
#include "lockstep/train/run/run.h"
#include "tests/tensor/cuda/gpu.h"

namespace lockstep::train::cuda_runs_test {
namespace {

using Settings = std::vector<std::string>;

class CudaRuns : public lockstep::testing::OnGpu<::testing::Test> {
 protected:
  CudaRuns() {
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 200; ++i) text << "the quick brown fox jumps over " << i << " lazy dogs\n";
  }

  void run(const std::string& dir, int ranks, int steps, const Settings& more) const {
    Settings settings = {"data.text=" + (folder / "text.txt").string(),
                         "data.tokenizer=character",
                         "run.dir=" + (folder / dir).string(),
                         "model.layers=2",
                         "model.hidden=32",
                         "model.heads=4",
                         "train.seq_len=8",
                         "train.global_batch_size=8",
                         "train.micro_batch_size=2",
                         "train.precision=f32",
                         "train.threads=1",
                         "train.validate_every=5",
                         "train.validate_batches=2",
                         "checkpoint.every=0",
                         "optimizer.learning_rate=0.01",
                         "optimizer.max_grad_norm=0.5",
                         "device.share=true",
                         "train.steps=" + std::to_string(steps)};
    settings.insert(settings.end(), more.begin(), more.end());
    const StopSignal stop;
    CommOptions comm;
    comm.measure = false;
    run_threads(
        ranks,
        [&](Communicator& world) {
          RunSettings given;
          for (const std::string& one : settings) given.config.set(one);
          std::vector<std::unique_ptr<RunObserver>> observers;
          if (world.rank() == 0) observers.push_back(make_metrics_file());
          run_training(given, observers, stop, {.world = &world, .host = {}});
          world.barrier();  // memory of a GPU is freed when all are done
        },
        comm);
  }

  // Of every step; validations come at the end of every run too.
  void expect_losses_of(const std::string& got, const std::string& want) const {
    std::vector<double> losses[2];
    for (const int i : {0, 1}) {
      read_metrics(folder / (i == 0 ? got : want),
                   [&](const StepRecord& record) { losses[i].push_back(record.metrics.loss); });
    }
    ASSERT_FALSE(losses[1].empty());
    ASSERT_EQ(losses[0].size(), losses[1].size());
    for (std::size_t i = 0; i < losses[0].size(); ++i) {
      EXPECT_NEAR(losses[0][i], losses[1][i], 2e-5 * std::max(1.0, losses[1][i])) << got << i;
    }
  }

  ScratchFolder scratch;
  std::filesystem::path folder = scratch.path();
};

TEST_F(CudaRuns, PipelinesHaveTheLossesOfOneRank) {
  run("one", 1, 10, {"run.device=cuda"});
  for (const char* const schedule : {"1f1b", "gpipe", "sequential"}) {
    const std::string dir = std::string("pipeline-") + schedule;
    run(dir, 2, 10,
        {"run.device=cuda", "parallel.pipeline=2",
         std::string("parallel.pipeline_schedule=") + schedule});
    expect_losses_of(dir, "one");
  }
  run("2x2", 4, 10, {"run.device=cuda", "parallel.pipeline=2"});
  expect_losses_of("2x2", "one");
  run("2x2 zero", 4, 10, {"run.device=cuda", "parallel.pipeline=2", "parallel.zero=1"});
  expect_losses_of("2x2 zero", "one");
}

TEST_F(CudaRuns, CheckpointsMoveBetweenCpusAndGpus) {
  run("cpu", 1, 12, {"run.device=cpu"});
  const std::vector<std::pair<int, Settings>> rests = {
      {1, {"run.device=cuda"}},
      {2, {"run.device=cuda", "parallel.zero=3"}},
      {1, {"run.device=cpu"}},
      {1, {"run.device=cuda", "offload.optimizer=host", "offload.parameters=host"}},
      {2, {"run.device=cuda", "parallel.pipeline=2"}},
      {3, {"run.device=cuda", "parallel.zero=2"}}};
  // One run that goes on somewhere else every two steps.
  int steps = 0;
  for (const auto& [ranks, settings] : rests) run("moves", ranks, steps += 2, settings);
  expect_losses_of("moves", "cpu");
}

}  // namespace
}  // namespace lockstep::train::cuda_runs_test
