// lockstep bench data-parallel as people call it, with models of a few thousand parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/file/scratch_folder.h"
#include "tests/cli/shell.h"
#include "tests/paths.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_lockstep;

constexpr const char* kTinyRun =
    " --runs 1 --set model.layers=1 --set model.hidden=32 --set model.heads=2"
    " --set model.vocabulary=61 --set train.seq_len=16 --set train.precision=f32";

// Passes for PyTorch's side: every step takes 1 s by its own clock. Each rank knows who it is.
constexpr const char* kDdpPeer = R"(
import json, os, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if given["--mode"] == "compile":
    sys.exit("no compiler here")
assert os.environ["WORLD_SIZE"] == "2" and os.environ["MASTER_ADDR"] == "127.0.0.1"
if os.environ["RANK"] == "0":
    seconds = 1.0 if given["--reduce"] == "f32" else 2.0
    json.dump({"seconds": [9.0, 9.0, seconds], "tokens": int(given["--batch"]) * 16},
              open(given["--json"], "w"))
)";

class BenchDataParallel : public ::testing::Test {
 protected:
  Outcome bench(const std::string& flags) const {
    return run_lockstep("bench data-parallel" + std::string(kTinyRun) + " --json " +
                        (folder_ / "out.json").string() + " " + flags);
  }
  // The object with that setting or bar.
  nlohmann::json result(const std::string& key, const std::string& value) const {
    std::ifstream file(folder_ / "out.json");
    for (const auto& object : nlohmann::json::parse(file, nullptr, false)) {
      if (object.value(key, "") == value) return object;
    }
    return {};
  }
  std::string python() const {
    const fs::path path = folder_ / "python";
    std::ofstream(path) << "#!/bin/sh\n[ \"$1\" = -c ] || exec python3 \"$@\"\n";
    fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }

  std::string text() const {
    const fs::path path = folder_ / "text.txt";
    std::ofstream file(path);
    for (int i = 0; i < 300; ++i) file << "it was the best of times " << i << "\n";
    return path.string();
  }

  ScratchFolder scratch_;
  const fs::path& folder_ = scratch_.path();
};

TEST_F(BenchDataParallel, ScalingComparesRanksWithThreadsAndTheBestOfThePeers) {
  if (testing::shell("python3 -c 1").exit_code != 0) GTEST_SKIP() << "there is no python3";
  std::ofstream(folder_ / "ddp_pytorch.py") << kDdpPeer;
  const Outcome outcome = bench("--case scaling --batch 4 --steps 3 --peers --python " + python() +
                                " --peers-folder " + folder_.string());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const double alone = result("setting", "1 rank, 2 threads").value("tokens_per_s", 0.0);
  const auto together = result("setting", "2 ranks, 1 thread each");
  EXPECT_GT(alone, 0);
  EXPECT_GT(together.value("compute_s", 0.0), 0);
  EXPECT_GT(together.value("bytes_sent", 0.0), 0);
  const double ours = together.value("tokens_per_s", 0.0);
  const auto bar = result("bar", "tokens/s of 2 ranks, 1 thread each / 1 rank, 2 threads");
  EXPECT_DOUBLE_EQ(bar.value("value", 0.0), ours / alone);
  EXPECT_EQ(bar.value("met", false), ours / alone >= 0.95);
  EXPECT_DOUBLE_EQ(result("setting", "pytorch-ddp eager").value("tokens_per_s", 0.0), 64);
  EXPECT_THAT(result("setting", "pytorch-ddp compile").value("problem", ""),
              HasSubstr("no compiler here"));
  const auto beside =
      result("bar", "tokens/s of 2 ranks, 1 thread each / PyTorch's DDP at its best");
  EXPECT_DOUBLE_EQ(beside.value("value", 0.0), ours / 64);
}

TEST_F(BenchDataParallel, FindsTheLinkOnWhichCommunicationTakesAsLongAsBackward) {
  const Outcome outcome = bench("--case overlap --batch 2 --steps 3");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("of backward of "));
  for (const char* setting : {"no emulation", "overlap", "no overlap"}) {
    EXPECT_GT(result("setting", setting).value("communication_s", 0.0), 0) << setting;
  }
  const double least = std::max(result("setting", "no emulation").value("compute_s", 0.0),
                                result("setting", "no overlap").value("communication_s", 0.0));
  EXPECT_DOUBLE_EQ(
      result("bar", "step / max(compute, communication), no overlap").value("value", 0.0),
      result("setting", "no overlap").value("step_s", 0.0) / least);
}

TEST_F(BenchDataParallel, BytesOfCodecsAreThoseOnTheWire) {
  const Outcome outcome = bench("--case compression --steps 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_NEAR(result("bar", "bytes of int8 / f32's").value("value", 0.0), 0.26, 0.02);
  EXPECT_TRUE(result("bar", "bytes of topk 1 % / f32's").value("met", false)) << outcome.text;
  EXPECT_THAT(result("bar", "validation loss of int8 / none").value("problem", ""),
              HasSubstr("--text"));
}

TEST_F(BenchDataParallel, TheTreeGivesTheSameBitsOnAnyNumberOfRanks) {
  const Outcome outcome = bench("--case tree --steps 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_EQ(result("setting", "8 ranks").value("states", "8"),
            result("setting", "1 rank").value("states", "1"));
  for (const char* what : {"losses", "final states"}) {
    EXPECT_TRUE(
        result("bar", "runs whose " + std::string(what) + " differ in a bit from those of 1 rank")
            .value("met", false))
        << outcome.text;
  }
}

TEST_F(BenchDataParallel, BertOverARingLearnsAsOnOneRank) {
  const Outcome outcome = bench("--case bert --steps 60 --text " + text());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const auto one = result("setting", "1 rank");
  const auto four = result("setting", "4 ranks");
  EXPECT_LT(one.value("last_loss", 9.0), one.value("first_loss", 0.0) - 0.3) << outcome.text;
  // The first steps are those of one rank but for the order of sums.
  EXPECT_NEAR(four.value("first_loss", 0.0), one.value("first_loss", 1.0), 1e-3);
  EXPECT_DOUBLE_EQ(result("bar", "last loss on 4 ranks / on 1").value("value", 0.0),
                   four.value("last_loss", 0.0) / one.value("last_loss", 1.0));
  EXPECT_TRUE(result("bar", "fall of the loss on 4 ranks / on 1").value("met", false))
      << outcome.text;
  EXPECT_THAT(bench("--case bert").text, HasSubstr("needs --text"));
}

TEST_F(BenchDataParallel, ParameterServersAndStragglersAreTimedAndTheirLossesCompared) {
  // Enough steps that worker 0, which writes the metrics, has some of them however it is scheduled.
  const Outcome outcome = bench(
      "--case servers --case stragglers --link 1Gbit,100us --batch 2 --steps 80 --text " + text());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const auto priority = result("setting", "2 servers, priority");
  EXPECT_DOUBLE_EQ(
      result("bar", "steps/s of 2 servers, priority / 2 servers, fifo").value("value", 0.0),
      priority.value("tokens_per_s", 0.0) /
          result("setting", "2 servers, fifo").value("tokens_per_s", 1.0));
  for (const char* setting : {"bsp", "asp", "ssp(4)"}) {
    EXPECT_GT(result("setting", setting).value("steps_per_s", 0.0), 0) << setting;
    // Who guesses among 30 kinds of letters has 3.4.
    EXPECT_GT(result("setting", setting).value("val_loss", 0.0), 0.1) << setting;
    EXPECT_LT(result("setting", setting).value("val_loss", 9.0), 3.0) << setting;
  }
}

TEST_F(BenchDataParallel, ARunThatFailsIsReportedWithItsLastWords) {
  const Outcome outcome = bench("--case buckets --steps 2 --link 1Gbit --lockstep /bin/false");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(result("setting", "25 MB").value("problem", ""), HasSubstr("exit code 1"));
  EXPECT_EQ(result("bar", "step with buckets of 25 MB (the default) / the best")["value"], nullptr);
}

TEST_F(BenchDataParallel, WhatCannotBeIsRefusedBeforeAnythingRuns) {
  const Outcome no_case = bench("--case scalling");
  EXPECT_NE(no_case.exit_code, 0);
  EXPECT_THAT(no_case.text, HasSubstr("scaling"));
  const Outcome no_key = bench("--set train.stepps=3");
  EXPECT_NE(no_key.exit_code, 0);
  EXPECT_THAT(no_key.text, HasSubstr("train.steps"));
  EXPECT_NE(bench("--text /nowhere.txt").exit_code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "out.json"));
}

// Ended as by Ctrl-C, which background programs of a shell do not receive.
TEST_F(BenchDataParallel, EndsItsRunsWhenItIsEnded) {
  // A mark on the command line that identifies this bench's processes.
  const std::string mark = "train.seed=" + std::to_string(::getpid() + 1000000);
  const std::string runs = "pgrep -fc 'lockstep trai[n] .*" + mark + "'";
  const Outcome outcome = testing::shell(
      in_build("lockstep") + " bench data-parallel" + std::string(kTinyRun) +
      " --case overlap --link 1Gbit --steps 1000000 --set " + mark + " > " +
      (folder_ / "log").string() + " 2>&1 & bench=$!\n" +
      // The launcher and two ranks.
      "until [ $(" + runs + ") -ge 3 ]; do kill -0 $bench || exit 9; done\n" +
      "kill -TERM $bench; wait $bench; code=$?\n" + "for i in 1 2 3 4 5 6 7 8 9 10; do " + runs +
      " > /dev/null || exit $code; sleep 0.5; done\n" + "echo processes are left");
  EXPECT_EQ(outcome.exit_code, 130) << outcome.text;
}

}  // namespace
}  // namespace lockstep
