// Whole runs of several workers, as threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>

#include "lockstep/train/observe/metrics_line.h"
#include "lockstep/train/run/run.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train::run_workers_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

constexpr std::string_view kServers = "parallel.strategy=parameter_server";

struct Listener : RunObserver {
  explicit Listener(std::vector<std::string>& heard) : warnings(heard) {}
  std::vector<std::string>& warnings;

  void begin(const RunFacts&) override {}
  void step(const StepRecord&) override {}
  void sample(std::int64_t, const std::string&) override {}
  void notice(const std::string&) override {}
  void warning(const std::string& text) override { warnings.push_back(text); }
  void end(const RunEnd&) override {}
};

class RunWorkers : public ThreadRuns {
 protected:
  // Returns the warnings.
  std::vector<std::string> run(const std::string& dir, int ranks,
                               const std::vector<std::string>& more) const {
    std::vector<std::string> settings = {"data.text=" + (folder / "text.txt").string(),
                                         "data.tokenizer=character",
                                         "run.dir=" + (folder / dir).string(),
                                         "model.layers=2",
                                         "model.hidden=16",
                                         "model.heads=2",
                                         "train.seq_len=8",
                                         "train.global_batch_size=4",
                                         "train.micro_batch_size=1",
                                         "train.precision=f32",
                                         "train.threads=1",
                                         "train.validate_every=0",
                                         "train.validate_batches=1",
                                         "checkpoint.every=0"};
    const bool served = std::ranges::find(more, kServers) != more.end();
    settings.emplace_back(served ? "parallel.slice_mb=0.01" : "parallel.bucket_mb=0.01");
    settings.insert(settings.end(), more.begin(), more.end());
    std::vector<std::string> warnings;
    run_ranks(ranks, settings, [&](Observers& observers) {
      observers.push_back(std::make_unique<Listener>(warnings));
    });
    return warnings;
  }

  std::vector<std::string> lines(const std::string& dir) const {
    std::vector<std::string> all;
    std::ifstream file(folder / dir / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  std::vector<double> losses(const std::string& dir) const { return curve(dir).losses; }
  std::string saved(const std::string& dir, const std::string& name) const {
    const fs::path path = folder / dir / "checkpoints" / "step-00000008" / name;
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

// The half is saved on the way, the whole is not.
TEST_F(RunWorkers, WithCompressedGradientsGoOnToTheBit) {
  const std::string server(kServers);
  const std::vector<std::vector<std::string>> kinds = {
      {"parallel.compression=topk", "parallel.compression_ratio=0.05"},
      {"parallel.compression=onebit", "train.precision=f16"},
      {"parallel.compression=int8", server, "parallel.servers=2"},
      {"parallel.compression=randomk", "parallel.compression_ratio=0.1", server,
       "train.precision=f16"},
      {"parallel.compression=bf16", server}};
  int number = 0;
  for (std::vector<std::string> settings : kinds) {
    SCOPED_TRACE(settings[0] + " " + settings[1]);
    const std::string whole = "whole" + std::to_string(number);
    const std::string half = "half" + std::to_string(number++);
    settings.push_back("train.steps=8");
    EXPECT_THAT(run(whole, 2, settings), IsEmpty());
    settings.back() = "train.steps=4";
    run(half, 2, settings);
    settings.back() = "train.steps=8";
    EXPECT_THAT(run(half, 2, settings), IsEmpty());
    EXPECT_EQ(losses(half), losses(whole));
    EXPECT_TRUE(saved(half, "states.safetensors") == saved(whole, "states.safetensors"));
    EXPECT_TRUE(saved(half, "residuals.safetensors") == saved(whole, "residuals.safetensors"));
    EXPECT_EQ(saved(whole, "residuals.safetensors").empty(),
              settings[0] == "parallel.compression=bf16");
  }
}

TEST_F(RunWorkers, OfAnotherNumberShareOutWhatWasNotSent) {
  std::vector<std::string> settings = {"parallel.compression=topk", "train.steps=4"};
  run("run", 2, settings);
  settings.back() = "train.steps=8";
  EXPECT_THAT(run("run", 4, settings), Contains(HasSubstr("distributed over 4")));
  EXPECT_EQ(losses("run").size(), 8u);
  settings = {"parallel.compression=none", "train.steps=9"};
  EXPECT_THAT(run("run", 4, settings),
              Contains(HasSubstr("the residuals of the checkpoint are dropped")));
}

TEST_F(RunWorkers, TellOfEveryStepWhereItsTimeWent) {
  for (const std::string kind : {"ddp", "bsp", "asp", "ssp"}) {
    SCOPED_TRACE(kind);
    std::vector<std::string> settings = {"train.steps=8"};
    if (kind != "ddp") {
      settings.emplace_back(kServers);
      settings.push_back("parallel.consistency=" + kind);
      settings.push_back("parallel.compression=int8");
    }
    EXPECT_THAT(run(kind, 2, settings), IsEmpty());
    const auto all = lines(kind);
    ASSERT_FALSE(all.empty());
    for (const std::string& line : all) {
      for (const char* key : {"compute_ms", "communication_ms", "exposed_ms", "bytes_sent",
                              "staleness", "staleness_max"}) {
        EXPECT_THAT(line, HasSubstr(std::string("\"") + key + "\":"));
      }
      const WorkerCosts costs = parse_metrics_line(line).value().workers.value();
      EXPECT_LE(costs.staleness, costs.most_stale);
      EXPECT_GT(costs.bytes_sent, 0u);
      if (kind == "asp" || kind == "ssp") continue;
      EXPECT_EQ(costs.most_stale, 0);
      EXPECT_GE(costs.slowest_rank, 0);
    }
    EXPECT_THAT(all.back(), HasSubstr("\"val_loss\":"));
  }
}

}  // namespace
}  // namespace lockstep::train::run_workers_test
