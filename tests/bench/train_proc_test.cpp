// lockstep bench train as people call it, with a peer that only speaks like PyTorch's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/file/scratch_folder.h"
#include "tests/cli/shell.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;

constexpr const char* kTiny =
    " --batch 2 --seq 16 --steps 3 --threads 2 --set model.layers=1 --set model.hidden=32"
    " --set model.heads=2 --set model.vocabulary=61";

// Takes 1 s a step by its own clock and says on stderr in which order it was asked.
constexpr const char* kPeer = R"(
import json, os, socket, sys
mode = sys.argv[sys.argv.index("--mode") + 1]
if mode == "compile":
    sys.exit("no compiler here")
connection = socket.socket(socket.AF_UNIX)
connection.connect("\0" + os.environ["LOCKSTEP_BENCH_SOCKET"])
lines = connection.makefile("rw")
answers = {"step": {"seconds": 1.0, "loss": 4.0}, "reset": {}, "usage": {"peak_bytes": 12345},
           "gemm": {"flops_per_second": 1e6}}
print(json.dumps({"version": "a peer"}), file=lines, flush=True)
for line in lines:
    print(json.dumps(answers[line.strip()]), file=lines, flush=True)
)";

class BenchTrain : public ::testing::Test {
 protected:
  Outcome bench(const std::string& flags) const {
    return run_lockstep("bench train" + std::string(kTiny) + " " + flags);
  }
  nlohmann::json results() const {
    std::ifstream file(folder_ / "out.json");
    return nlohmann::json::parse(file, nullptr, false);
  }
  std::string json_flag() const { return "--json " + (folder_ / "out.json").string(); }
  // A program that passes for a Python with PyTorch.
  std::string python() const {
    const fs::path path = folder_ / "python";
    std::ofstream(path) << "#!/bin/sh\n[ \"$1\" = -c ] || exec python3 \"$@\"\n";
    fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }

  ScratchFolder scratch_;
  const fs::path& folder_ = scratch_.path();
};

TEST_F(BenchTrain, TellsAStepByItsOperations) {
  const Outcome outcome = bench("--profile " + json_flag());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  for (const char* told : {"by its operations", "linear with activation, 32 to 128",
                           "attention, backward", "cross-entropy", "between them", "the step"}) {
    EXPECT_THAT(outcome.text, HasSubstr(told));
  }
  const nlohmann::json profile = results().at(0).at("profile");
  double told = 0;
  for (const auto& one : profile.at("operations")) {
    told += one.at("seconds").get<double>();
    if (one.at("operation") == "linear with activation, 32 to 128") {
      EXPECT_EQ(one.at("calls"), 1);
      EXPECT_EQ(one.at("flops"), 2.0 * 2 * 16 * 32 * 128);
    }
  }
  EXPECT_GT(told, 0);
  EXPECT_LE(told, profile.at("step_seconds").get<double>());
  EXPECT_THAT(bench("").text, Not(HasSubstr("by its operations")));
}

TEST_F(BenchTrain, TimesOurOwnSteps) {
  for (const char* precision : {"f32", "bf16", "f16"}) {
    const Outcome outcome =
        bench(std::string("--precision ") + precision + " --recompute selective " + json_flag());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    const auto json = results();
    ASSERT_EQ(json.size(), 1u);
    EXPECT_EQ(json[0]["implementation"], "lockstep");
    EXPECT_EQ(json[0]["precision"], precision);
    EXPECT_EQ(json[0]["samples"].size(), 3u);
    EXPECT_GT(json[0]["tokens_per_s"], 0);
    EXPECT_GT(json[0]["gemm_flops"], 0);
    EXPECT_GT(json[0]["peak_bytes"], json[0]["planned_bytes"]);
    EXPECT_NEAR(json[0]["first_loss"].get<double>(), std::log(61), 0.2);
    EXPECT_LT(json[0]["last_loss"], json[0]["first_loss"]);
  }
}

TEST_F(BenchTrain, PeersTakeTurnsAndOneThatFailsIsLeftBehind) {
  if (testing::shell("python3 -c 1").exit_code != 0) GTEST_SKIP() << "there is no python3";
  std::ofstream(folder_ / "train_pytorch.py") << kPeer;
  const Outcome outcome = bench("--precision f32 --peers --python " + python() +
                                " --peers-folder " + folder_.string() + " " + json_flag());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const auto json = results();
  ASSERT_EQ(json.size(), 3u) << outcome.text;
  EXPECT_EQ(json[1]["implementation"], "pytorch-eager");
  EXPECT_EQ(json[1]["version"], "a peer");
  EXPECT_DOUBLE_EQ(json[1]["tokens_per_s"], 32);
  EXPECT_EQ(json[1]["peak_bytes"], 12345);
  EXPECT_DOUBLE_EQ(json[1]["gemm_flops"], 1e6);
  EXPECT_EQ(json[2]["implementation"], "pytorch-compile");
  EXPECT_EQ(json[2]["tokens_per_s"], nullptr);
  EXPECT_THAT(json[2]["problem"].get<std::string>(), HasSubstr("no compiler here"));
  EXPECT_THAT(outcome.text, HasSubstr("against pytorch-eager"));
}

TEST_F(BenchTrain, GoesOnWithoutPyTorchAndSaysHowToGetIt) {
  const Outcome outcome = bench("--precision f32 --peers --python /bin/false");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("left out: PyTorch: /bin/false cannot import torch"));
  EXPECT_THAT(outcome.text, HasSubstr("./dev peers"));
}

TEST_F(BenchTrain, RefusesWithASentence) {
  const struct {
    const char* flags;
    const char* said;
  } cases[] = {{"--model gpt2-124m", "already has its sizes"},
               {"--precision f64", "precision must be one of"},
               {"--set model.layer=3", "did you mean model.layers?"},
               {"--set memory.limit=1KiB", "over memory.limit"},
               {"--set memory.auto=true", "memory.auto chooses for a run"},
               {"--set offload.parameters=file", "needs offload.optimizer = \"file\""},
               {"--set offload.optimizer=file --set offload.bandwidth=fast", "offload.bandwidth"},
               {"--set parallel.strategy=parameter_server --set offload.optimizer=host",
                "servers hold the states"},
               {"--set parallel.secondary_partition=true", "Set parallel.zero = 3"},
               {"--json /nowhere/out.json", "cannot write /nowhere/out.json"},
               {"--steps 0", "--steps"}};
  for (const auto& one : cases) {
    const Outcome outcome = bench(one.flags);
    EXPECT_NE(outcome.exit_code, 0) << one.flags;
    EXPECT_THAT(outcome.text, HasSubstr(one.said)) << one.flags;
  }
}

TEST_F(BenchTrain, KnowsTheEncoderDecoder) {
  const Outcome outcome = bench("--set model.family=encoder-decoder " + json_flag());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  ASSERT_EQ(results().size(), 1u) << outcome.text;
  const nlohmann::json ours = results()[0];
  EXPECT_EQ(ours["model"], "encoder-decoder");
  EXPECT_GT(ours["tokens_per_s"], 0);
  EXPECT_GT(ours["gemm_flops"], 0);
  EXPECT_LT(ours["last_loss"], ours["first_loss"]);
}

}  // namespace
}  // namespace lockstep
