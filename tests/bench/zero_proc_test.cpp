// lockstep bench zero as people call it, with models of a few thousand parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/file/scratch_folder.h"
#include "tests/cli/shell.h"

namespace lockstep::bench_zero_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_lockstep;

constexpr const char* kTinyZero =
    "bench zero --runs 1 --batch 4 --set model.layers=1 --set model.hidden=32 --set model.heads=2"
    " --set model.vocabulary=61 --set train.seq_len=16 --set train.precision=f32 --json ";

// Passes for PyTorch's side: what is reduced in bf16 is slower, and takes less memory, whatever it
// says of VmHWM.
constexpr const char* kFsdpPeer = R"(
import json, os, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if given["--mode"] == "compile":
    sys.exit("no compiler here")
slow = given["--reduce"] == "bf16"
memory = b"x" * ((20 if slow else 60) << 20)
time.sleep(0.3)
if os.environ["RANK"] == "0":
    json.dump({"seconds": [9.0, 9.0, 2.0 if slow else 1.0], "tokens": int(given["--batch"]) * 16,
               "peak_bytes": 1e9 if slow else 2e9}, open(given["--json"], "w"))
)";

class BenchZero : public ::testing::Test {
 protected:
  Outcome bench(const std::string& flags) const {
    return run_lockstep(kTinyZero + (folder_ / "out.json").string() + " " + flags);
  }
  // The object with that setting or bar.
  nlohmann::json result(const std::string& key, const std::string& value) const {
    std::ifstream file(folder_ / "out.json");
    for (const auto& object : nlohmann::json::parse(file, nullptr, false)) {
      if (object.value(key, "") == value) return object;
    }
    return {};
  }
  double number(const std::string& setting, const char* key) const {
    return result("setting", setting).value(key, 0.0);
  }
  double bar(const std::string& claim) const { return result("bar", claim).value("value", 0.0); }

  ScratchFolder scratch_;
  const fs::path& folder_ = scratch_.path();
};

TEST_F(BenchZero, ComparesTheStagesInTimeAndMemory) {
  const Outcome outcome = bench("--case stages --steps 3");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  for (const char* setting : {"DDP", "ZeRO, stage 1", "ZeRO, stage 2", "ZeRO, stage 3"}) {
    EXPECT_GT(number(setting, "tokens_per_s"), 0) << setting;
    EXPECT_GT(number(setting, "peak_bytes"), 1e6) << setting;
  }
  EXPECT_DOUBLE_EQ(bar("tokens/s of ZeRO, stage 3 / DDP"),
                   number("ZeRO, stage 3", "tokens_per_s") / number("DDP", "tokens_per_s"));
}

TEST_F(BenchZero, ComparesStageThreeWithTheBestOfThePeers) {
  if (testing::shell("python3 -c 1").exit_code != 0) GTEST_SKIP() << "there is no python3";
  std::ofstream(folder_ / "fsdp_pytorch.py") << kFsdpPeer;
  const fs::path python = folder_ / "python";
  std::ofstream(python) << "#!/bin/sh\n[ \"$1\" = -c ] || exec python3 \"$@\"\n";
  fs::permissions(python, fs::perms::owner_all);
  const Outcome outcome = bench("--case fsdp --steps 3 --peers --python " + python.string() +
                                " --peers-folder " + folder_.string());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_EQ(number("pytorch-fsdp2 eager", "peak_bytes"), 2e9);
  EXPECT_GT(number("ZeRO, stage 3", "peak_bytes"), 1e6);
  if (fs::exists("/proc/self/smaps_rollup")) {
    constexpr double kMebi = 1 << 20;
    const std::string least = "pytorch-fsdp2 eager, reduced in bf16";
    EXPECT_GT(number("pytorch-fsdp2 eager", "peak_pss_bytes"), 60 * kMebi);
    EXPECT_GT(number(least, "peak_pss_bytes"), 20 * kMebi);
    EXPECT_LT(number(least, "peak_pss_bytes"), 60 * kMebi);
    EXPECT_GT(number(least, "all_pss_bytes"), number(least, "peak_pss_bytes"));
    EXPECT_GT(number(least, "pss_samples"), 2);
    EXPECT_GT(number("ZeRO, stage 3", "peak_pss_bytes"), 1e6);
    EXPECT_DOUBLE_EQ(bar("PSS of a rank of ZeRO, stage 3 / FSDP2 with its least"),
                     number("ZeRO, stage 3", "peak_pss_bytes") / number(least, "peak_pss_bytes"));
  }
  EXPECT_DOUBLE_EQ(bar("tokens/s of ZeRO, stage 3 / FSDP2 at its best"),
                   number("ZeRO, stage 3", "tokens_per_s") / 64);
  EXPECT_THAT(result("setting", "pytorch-fsdp2 compile").value("problem", ""),
              HasSubstr("no compiler here"));
}

TEST_F(BenchZero, TellsHowLongASaveKeepsTheRunWaiting) {
  // The second save waits for the first, however long that takes.
  const Outcome outcome = bench("--case saves --steps 10");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_EQ(number("no saves", "stall_s"), 0);
  EXPECT_EQ(number("written between steps", "background_s"), 0);
  EXPECT_GT(number("written during steps", "background_s"), 0);
  EXPECT_DOUBLE_EQ(
      bar("stall of a save written during steps / written between steps"),
      number("written during steps", "stall_s") / number("written between steps", "stall_s"));
  EXPECT_THAT(bench("--case save").text, HasSubstr("did you mean"));
}

}  // namespace
}  // namespace lockstep::bench_zero_test
