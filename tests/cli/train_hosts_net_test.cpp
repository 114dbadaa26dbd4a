// One model trained by the ranks of two hosts, which may lose each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/train_nodes.h"
#include "tests/launch/hosts.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainHosts : public testing::TrainCommand {};

TEST_F(TrainHosts, TwoOfTwoRanksGiveTheBitsOfOne) {
  testing::Hosts hosts(2);
  if (!hosts.allowed()) GTEST_SKIP() << "network namespaces need root";
  ASSERT_TRUE(hosts.ready()) << "network namespaces need iproute2 and tc";
  const std::string more = "train.micro_batch_size=1 parallel.reduction=tree train.steps=6";
  ASSERT_EQ(testing::run_lockstep("train " + settings("one", more)).exit_code, 0);
  hosts.train(2, settings("hosts", more), "LOCKSTEP_COMM_CACHE_DIR= LOCKSTEP_COMM_TIMEOUT=60s");
  EXPECT_EQ(losses("hosts"), losses("one"));
  const std::string states = "checkpoints/step-00000006/states.safetensors";
  EXPECT_EQ(text_of(folder / "hosts" / states), text_of(folder / "one" / states));
  EXPECT_FALSE(text_of(folder / "one" / states).empty());
}

TEST_F(TrainHosts, QuantisedBetweenThemGivesTheBitsOfEmulatedOnes) {
  testing::Hosts hosts(2);
  if (!hosts.allowed()) GTEST_SKIP() << "network namespaces need root";
  ASSERT_TRUE(hosts.ready()) << "network namespaces need iproute2 and tc";
  const std::string more =
      "train.precision=bf16 train.steps=4 parallel.zero=3 parallel.quantized_weights=int8 "
      "parallel.secondary_partition=true parallel.quantized_gradients=int4 ";
  const std::string emulated =
      "train " + settings("emulated", more + "--ranks 4 comm.emulated_nodes=2");
  ASSERT_EQ(testing::run_lockstep(emulated).exit_code, 0);
  hosts.train(2, settings("hosts", more), "LOCKSTEP_COMM_CACHE_DIR= LOCKSTEP_COMM_TIMEOUT=60s");
  EXPECT_EQ(losses("hosts"), losses("emulated"));
  EXPECT_FALSE(losses("hosts").empty());
}

TEST_F(TrainHosts, WithOtherSettingsAreNamedAndRefused) {
  testing::Hosts hosts(2);
  if (!hosts.allowed()) GTEST_SKIP() << "network namespaces need root";
  ASSERT_TRUE(hosts.ready()) << "network namespaces need iproute2 and tc";
  const auto ends =
      hosts.train_by(2, {settings("mismatch"), settings("mismatch", "optimizer.learning_rate=0.5")},
                     "LOCKSTEP_COMM_CACHE_DIR= LOCKSTEP_COMM_TIMEOUT=60s");
  for (const auto& end : ends) {
    EXPECT_EQ(end.exit_code, 1) << end.text;
    EXPECT_THAT(end.text,
                AllOf(HasSubstr("different settings"), HasSubstr("optimizer.learning_rate = "),
                      HasSubstr("0.5 at rank 2")));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "mismatch"));
}

class TrainHostsRecovery : public testing::TrainNodes {};

// The mirrors of a host's shards are on the other host.
TEST_F(TrainHostsRecovery, OfMirroredZeroOutlivesAWholeHost) {
  testing::Hosts hosts(2);
  if (!hosts.allowed()) GTEST_SKIP() << "network namespaces need root";
  ASSERT_TRUE(hosts.ready()) << "network namespaces need iproute2 and tc";
  const std::string more =
      "train.micro_batch_size=1 parallel.reduction=tree checkpoint.every=0 parallel.zero=2 "
      "survive.mirror=true";
  ASSERT_EQ(testing::run_lockstep("train " + job("whole", more + " --ranks 4")).exit_code, 0);
  address_ = hosts.address(1) + ":29413";
  for (const int node : {0, 1}) command_begin_[node] = hosts.on(node + 1);
  start_nodes(job("job", more));
  await_step("job", 30);
  kill_node(1);
  await_log(0, "the other nodes wait 10m 00s for node 1");
  start_node(1, job("job", more));
  expect_undisturbed("job");
  EXPECT_THAT(log(0), AllOf(HasSubstr("that of rank 2 from its mirror on rank"),
                            HasSubstr("that of rank 3 from its mirror on rank"),
                            ::testing::Not(HasSubstr("newest checkpoint"))));
}

// For so long that both launchers take the other for lost. Nobody is started again.
TEST_F(TrainHostsRecovery, ContinuesWhenThePulledCableIsPluggedInAgain) {
  testing::Hosts hosts(2);
  if (!hosts.allowed()) GTEST_SKIP() << "network namespaces need root";
  ASSERT_TRUE(hosts.ready()) << "network namespaces need iproute2 and tc";
  const std::string more =
      "train.micro_batch_size=1 parallel.reduction=tree checkpoint.every=0 --grace 10min";
  ASSERT_EQ(testing::run_lockstep("train " + job("whole", more + " --ranks 4")).exit_code, 0);
  address_ = hosts.address(1) + ":29412";
  for (const int node : {0, 1}) command_begin_[node] = hosts.on(node + 1);
  start_nodes(job("job", more));
  await_step("job", 30);
  hosts.plug(2, false);
  await_log(0, "the other nodes wait 10m 00s for node 1");
  await_log(1, "waiting 10m 00s for node 0");
  hosts.plug(2, true);
  expect_undisturbed("job");
  EXPECT_THAT(log(0), AllOf(HasSubstr("lost node 1 (ranks 2 to 3)"), HasSubstr("node 1 is back"),
                            HasSubstr("with the states of rank"),
                            HasSubstr("ranks 0, 1 kept their processes and wait")));
  EXPECT_THAT(log(1), AllOf(HasSubstr("lost node 0"), HasSubstr("joined node 0 again"),
                            HasSubstr("ranks 2, 3 kept their processes and wait")));
}

}  // namespace
}  // namespace lockstep
