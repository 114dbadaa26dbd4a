// Whole runs whose workers exchange gradients and parameters by NCCL, as processes that share a
// GPU.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/observe/metrics_line.h"
#include "tests/launch/launched.h"
#include "tests/paths.h"
#include "tests/tensor/cuda/gpu.h"

namespace lockstep::train::nccl_training_test {
namespace {

class NcclTraining : public lockstep::testing::OnGpu<::testing::Test> {
 protected:
  NcclTraining() {
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 200; ++i) text << "the quick brown fox jumps over " << i << " lazy dogs\n";
  }

  // The losses of all steps.
  std::vector<double> losses(const std::string& dir, int ranks,
                             const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"-n",
                                          std::to_string(ranks),
                                          "--",
                                          in_build("lockstep"),
                                          "train",
                                          "data.text=" + (folder_ / "text.txt").string(),
                                          "data.tokenizer=character",
                                          "run.dir=" + (folder_ / dir).string(),
                                          "run.device=cuda",
                                          "device.share=true",
                                          "model.layers=2",
                                          "model.hidden=32",
                                          "model.heads=4",
                                          "train.seq_len=8",
                                          "train.global_batch_size=8",
                                          "train.micro_batch_size=2",
                                          "train.precision=f32",
                                          "train.threads=1",
                                          "train.steps=8",
                                          "checkpoint.every=0",
                                          "optimizer.learning_rate=0.01",
                                          "parallel.reduction=tree",
                                          "comm.measure=false"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    testing::Launched job(arguments, {"LOCKSTEP_TUNE=0"});  // the same algorithms in all runs
    EXPECT_EQ(job.wait(std::chrono::seconds(240)), 0) << dir << ": " << job.err();
    std::vector<double> losses;
    read_metrics(folder_ / dir,
                 [&](const StepRecord& record) { losses.push_back(record.metrics.loss); });
    return losses;
  }

 private:
  ScratchFolder scratch_;
  std::filesystem::path folder_ = scratch_.path();
};

TEST_F(NcclTraining, HasTheBitsOfOneWorker) {
  const std::vector<double> one = losses("one", 1, {});
  ASSERT_EQ(one.size(), 8u);
  EXPECT_LT(one.back(), one.front());
  EXPECT_EQ(losses("ddp", 2, {"comm.device_backend=nccl"}), one);
  EXPECT_EQ(losses("zero 2", 2, {"comm.device_backend=nccl", "parallel.zero=2"}), one);
  EXPECT_EQ(losses("zero 3", 4, {"comm.device_backend=nccl", "parallel.zero=3"}), one);
}

TEST_F(NcclTraining, IsChosenForRanksOnSeveralNodes) {
  const std::vector<double> one = losses("one", 1, {});
  ASSERT_EQ(one.size(), 8u);
  EXPECT_EQ(losses("ddp", 2, {"comm.emulated_nodes=2"}), one);
  EXPECT_EQ(losses("zero 3", 2, {"comm.emulated_nodes=2", "parallel.zero=3"}), one);
}

// Two levels sum in the order of the tree, so the bits are those of one worker.
TEST_F(NcclTraining, HasTheBitsOfOneWorkerInTwoLevels) {
  const std::vector<double> one = losses("one", 1, {});
  ASSERT_EQ(one.size(), 8u);
  for (const std::string backend : {"hierarchical", "auto"}) {
    const std::string chosen = "comm.device_backend=" + backend;
    EXPECT_EQ(losses("ddp " + backend, 4, {"comm.emulated_nodes=2", chosen}), one);
    for (const char* stage : {"1", "2", "3"}) {
      EXPECT_EQ(losses("zero " + backend + stage, 4,
                       {"comm.emulated_nodes=2", chosen, std::string("parallel.zero=") + stage}),
                one)
          << stage;
    }
  }
}

// Within a node kernels on mapped memory, between nodes NCCL.
TEST_F(NcclTraining, CompressesAndQuantisesAsTheCpuDoes) {
  const std::vector<std::string> ways[] = {
      {"parallel.compression=int8", "comm.emulated_nodes=2"},
      {"parallel.compression=topk", "parallel.compression_ratio=0.1", "comm.emulated_nodes=2"},
      {"parallel.zero=3", "parallel.quantized_weights=int8", "parallel.secondary_partition=true",
       "parallel.quantized_gradients=int4", "comm.emulated_nodes=2"}};
  for (std::size_t way = 0; way < std::size(ways); ++way) {
    std::vector<std::string> settings = ways[way];
    settings.push_back("parallel.reduction=fast");
    const std::vector<double> gpu = losses("gpu " + std::to_string(way), 4, settings);
    settings.push_back("run.device=cpu");
    const std::vector<double> cpu = losses("cpu " + std::to_string(way), 4, settings);
    ASSERT_EQ(gpu.size(), 8u);
    ASSERT_EQ(cpu.size(), 8u);
    EXPECT_LT(gpu.back(), gpu.front());
    for (std::size_t step = 0; step < gpu.size(); ++step) {
      EXPECT_NEAR(gpu[step], cpu[step], 0.02) << "way " << way << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace lockstep::train::nccl_training_test
