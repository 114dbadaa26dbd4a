// `lockstep launch --max-restarts`: programs of others are started again, all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launched.h"
#include "lockstep/base/net/socket.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Launched restarted(const std::string& restarts, const std::string& script,
                   std::vector<std::string> flags = {}) {
  std::vector<std::string> arguments{"-n", "3", "--max-restarts", restarts};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return Launched(arguments);
}

// A line for each start of a rank.
constexpr const char* kNote = "echo $RANK $LOCKSTEP_GENERATION >> $DIR/starts; ";

std::vector<std::string> starts_of(const Launched& job) {
  std::vector<std::string> lines;
  std::ifstream file(job.folder() / "starts");
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

TEST(LaunchRestarts, StartAllRanksAgainUntilTheyEndWell) {
  // The others would not notice that rank 1 is missing.
  auto job = restarted("2", std::string(kNote) +
                                "[ $LOCKSTEP_GENERATION = 2 ] && exit 0; "
                                "[ $RANK = 1 ] && until [ $(wc -l < $DIR/starts) = "
                                "$((3 * LOCKSTEP_GENERATION + 3)) ]; do sleep 0.01; done && "
                                "kill -9 $$; exec sleep 1000");
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(starts_of(job), ::testing::ElementsAre("0 0", "0 1", "0 2", "1 0", "1 1", "1 2",
                                                     "2 0", "2 1", "2 2"));
  EXPECT_THAT(job.err(),
              AllOf(HasSubstr("was killed by SIGKILL"), HasSubstr("1 restart is left"),
                    HasSubstr("0 restarts are left"), HasSubstr("starting all 3 ranks again"),
                    Not(HasSubstr("the job failed"))));
  EXPECT_TRUE(job.leaves_nobody());
}

TEST(LaunchRestarts, EndTheJobAsEverWhenNoneIsLeft) {
  auto job = restarted("1", std::string(kNote) + "[ $RANK = 2 ] && exit 7; exec sleep 1000",
                       {"--grace", "200ms"});
  EXPECT_EQ(job.wait(), 7);
  EXPECT_EQ(std::ranges::count(starts_of(job), "2 0"), 1);
  EXPECT_EQ(std::ranges::count(starts_of(job), "2 1"), 1);
  EXPECT_EQ(std::ranges::count(starts_of(job), "2 2"), 0);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("no restart is left (--max-restarts: 1)"),
                               HasSubstr("the job failed: rank 2")));
  EXPECT_TRUE(job.leaves_nobody());
}

TEST(LaunchRestarts, AreNotForAJobThatWasAskedToStop) {
  const std::string stops = "trap 'exit 75' TERM; ";
  const std::string fails = "trap 'exit 9' TERM; ";
  for (const std::string& end : {stops, fails}) {
    auto job = restarted("3", end + kNote + "while :; do sleep 0.02; done");
    ASSERT_TRUE(eventually([&] { return starts_of(job).size() == 3; }));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), end == stops ? 75 : 128 + SIGTERM) << job.err();
    EXPECT_EQ(starts_of(job).size(), 3u);
    EXPECT_TRUE(job.leaves_nobody());
  }
}

TEST(LaunchRestarts, KillWhatARankHasLeftRunning) {
  auto job = restarted("1",
                       "[ $LOCKSTEP_GENERATION = 1 ] && exit 0; trap '' TERM; "
                       "sleep 1000 & echo $! > $DIR/helper.$RANK; "
                       "[ $RANK = 0 ] && until [ -s $DIR/helper.1 ] && [ -s $DIR/helper.2 ]; "
                       "do sleep 0.01; done && exit 3; wait; wait; sleep 1000",
                       {"--grace", "200ms"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("has not come back and is killed"));
  EXPECT_TRUE(job.leaves_nobody());
}

// A rank of node 1 fails; all ranks of both nodes are started again.
TEST(LaunchRestarts, AreForSeveralNodesToo) {
  const std::string address = format_host_port(listen_tcp({"127.0.0.1", 0}).address);
  const ScratchFolder shared;
  const auto node = [&](int number) {
    return std::make_unique<Launched>(
        std::vector<std::string>{
            "-n", "2", "--nodes", "2", "--node-rank", std::to_string(number), "--rendezvous",
            address, "--max-restarts", "2", "--", "sh", "-c",
            "echo $RANK $LOCKSTEP_GENERATION $MASTER_PORT >> $SHARED/starts; "
            "[ $LOCKSTEP_GENERATION = 1 ] && exit 0; "
            "[ $RANK = 3 ] && until [ $(wc -l < $SHARED/starts) = 4 ]; do sleep 0.01; done && "
            "exit 7; exec sleep 1000"},
        std::vector<std::string>{"SHARED=" + shared.path().string(),
                                 "LOCKSTEP_TOKEN=" + std::string(64, 'a')});
  };
  auto one = node(1);
  auto zero = node(0);
  EXPECT_EQ(zero->wait(), 0) << zero->err();
  EXPECT_EQ(one->wait(), 0) << one->err();
  std::multiset<std::string> starts;
  std::set<std::string> ports;
  std::ifstream file(shared.path() / "starts");
  for (std::string rank, generation, port; file >> rank >> generation >> port;) {
    starts.insert(rank + " " + generation);
    if (generation == "1") ports.insert(port);
  }
  EXPECT_THAT(starts,
              ::testing::ElementsAre("0 0", "0 1", "1 0", "1 1", "2 0", "2 1", "3 0", "3 1"));
  EXPECT_EQ(ports.size(), 1u);
  EXPECT_THAT(one->err(), AllOf(HasSubstr("rank 3 on node 1 (pid "),
                                HasSubstr("exited with code 7"), HasSubstr("1 restart is left")));
  EXPECT_THAT(zero->err(), AllOf(HasSubstr("rank 3 on node 1 (pid "),
                                 HasSubstr("1 restart is left (--max-restarts: 2)"),
                                 HasSubstr("starting all 2 ranks again")));
  EXPECT_TRUE(zero->leaves_nobody());
  EXPECT_TRUE(one->leaves_nobody());
}

}  // namespace
}  // namespace lockstep::testing
