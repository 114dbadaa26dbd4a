// A mesh over two hosts with a slow link between them: tensor groups inside a host, the pipeline
// across.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/train_command.h"
#include "tests/launch/hosts.h"

namespace lockstep {
namespace {

class TrainMeshHosts : public testing::TrainCommand {
 protected:
  struct Steps {
    std::vector<double> losses;
    double seconds = 0;  // of a step, the median
  };

  Steps steps_of(const std::string& dir) const {
    Steps steps;
    std::vector<double> milliseconds;
    std::ifstream file(folder / dir / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      if (!json.contains("loss")) continue;
      steps.losses.push_back(json.at("loss"));
      milliseconds.push_back(json.at("step_ms"));
    }
    EXPECT_FALSE(milliseconds.empty()) << dir;
    if (milliseconds.empty()) return steps;
    std::ranges::sort(milliseconds);
    steps.seconds = milliseconds[milliseconds.size() / 2] / 1000;
    return steps;
  }

  static void expect_same_losses(const Steps& got, const Steps& want) {
    ASSERT_EQ(want.losses.size(), 6u);
    ASSERT_EQ(got.losses.size(), 6u);
    for (std::size_t i = 0; i < want.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i], want.losses[i], 1e-5 * want.losses[i]) << "step " << i + 1;
    }
  }
};

TEST_F(TrainMeshHosts, APipelineAcrossASlowLinkIsTwiceAsFastAsDataParallelism) {
  testing::Hosts hosts(2);
  if (!hosts.allowed()) GTEST_SKIP() << "network namespaces need root";
  ASSERT_TRUE(hosts.ready()) << "network namespaces need iproute2 and tc";
  for (const int host : {1, 2}) hosts.slow_down(host, "40mbit");
  ASSERT_TRUE(hosts.ready());
  const std::string model =
      "model.layers=4 model.hidden=128 model.heads=4 train.seq_len=32 train.global_batch_size=8 "
      "train.micro_batch_size=2 train.steps=6 checkpoint.every=0 ";
  const std::string variables = "LOCKSTEP_COMM_CACHE_DIR= LOCKSTEP_COMM_TIMEOUT=60s";
  hosts.train(2, settings("data", model), variables);
  hosts.train(2, settings("mesh", model + "parallel.tensor=2 parallel.pipeline=2"), variables);
  const Steps data = steps_of("data");
  const Steps mesh = steps_of("mesh");
  expect_same_losses(mesh, data);
  fmt::print("2 hosts of 2 ranks, 40 Mbit/s: data {:.3f} s a step, tensor x pipeline {:.3f} s\n",
             data.seconds, mesh.seconds);
  EXPECT_GE(data.seconds, 2 * mesh.seconds);
}

// Sums of a tensor group that travel while the next chunk of tokens is computed.
TEST_F(TrainMeshHosts, SumsThatTravelBesideProductsGiveTheSameLosses) {
  testing::Hosts hosts(2);
  if (!hosts.allowed()) GTEST_SKIP() << "network namespaces need root";
  ASSERT_TRUE(hosts.ready()) << "network namespaces need iproute2 and tc";
  for (const int host : {1, 2}) hosts.slow_down(host, "400mbit");
  ASSERT_TRUE(hosts.ready());
  const std::string model =
      "model.layers=4 model.hidden=512 model.heads=8 train.seq_len=128 train.global_batch_size=8 "
      "train.micro_batch_size=8 train.steps=6 train.threads=1 checkpoint.every=0 "
      "parallel.tensor=2 ";
  const std::string variables = "LOCKSTEP_COMM_CACHE_DIR= LOCKSTEP_COMM_TIMEOUT=60s";
  hosts.train(1, settings("whole", model + "parallel.tensor_chunks=1"), variables);
  hosts.train(1, settings("chunks", model + "parallel.tensor_chunks=4"), variables);
  const Steps whole = steps_of("whole");
  const Steps chunks = steps_of("chunks");
  expect_same_losses(chunks, whole);
  fmt::print("a tensor group over 2 hosts, 400 Mbit/s: {:.3f} s a step, in chunks {:.3f} s\n",
             whole.seconds, chunks.seconds);
}

}  // namespace
}  // namespace lockstep
