// Ranks of `lockstep train` that are asked to end, or lose another, before all have come together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/net/socket.h"
#include "tests/cli/train_ranks.h"
#include "tests/paths.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::Launched;
using ::testing::Not;

class TrainStart : public testing::TrainRanks {};

// Rank 0 of two, started by hand: it listens where the other never comes.
TEST_F(TrainStart, ARankThatWaitsForOthersEndsWhenItIsAsked) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::uint16_t port = listen_tcp({"127.0.0.1", 0}).address.port;
    const std::string place = fmt::format(
        "{} RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 LOCKSTEP_RENDEZVOUS=127.0.0.1:{}",
        kToken, port);
    const std::string command =
        fmt::format("exec env {} {} train {} > {}/log.txt 2>&1", place, in_build("lockstep"),
                    settings("waits", "comm.timeout=30s"), folder.string());
    const pid_t rank = ::fork();
    if (rank == 0) {
      ::signal(SIGINT, SIG_DFL);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    connect_tcp({"127.0.0.1", port}, deadline_in(std::chrono::seconds(60)), Retry::kUntilDeadline);
    ::kill(rank, signal);
    const int status = wait_for(rank);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 75) << text_of(folder / "log.txt");
    EXPECT_THAT(text_of(folder / "log.txt"), HasSubstr("ended before the first step"));
  }
}

// A text that is one word, from which a tokenizer takes minutes to learn: nothing in between looks
// for signals.
TEST_F(TrainStart, SigtermEndsARunWithinOneHugeDocument) {
  {
    std::string word;
    for (std::uint32_t i = 0, state = 1; i < (1u << 20); ++i) {
      state = state * 1664525 + 1013904223;
      word += static_cast<char>('a' + (state >> 24) % 10);
    }
    std::ofstream text(folder / "huge.txt");
    for (int i = 0; i < 40; ++i) text << word;
  }
  for (const std::string ranks : {"", " --ranks 2"}) {
    std::filesystem::remove(folder / "log.txt");
    const pid_t run = start(settings(
        "huge", "data.text=" + (folder / "huge.txt").string() + " data.tokenizer=bpe" + ranks));
    ASSERT_TRUE(testing::eventually(
        [&] { return text_of(folder / "log.txt").find("learning a bpe") != std::string::npos; },
        std::chrono::seconds(60)))
        << text_of(folder / "log.txt");
    const auto asked = std::chrono::steady_clock::now();
    ::kill(run, SIGTERM);
    const int status = wait_for(run);
    EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(10));
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 75) << text_of(folder / "log.txt");
    EXPECT_THAT(text_of(folder / "log.txt"), HasSubstr("ended before the first step"));
    EXPECT_FALSE(std::filesystem::exists(folder / "huge")) << "it was new";
  }
}

// Rank 1 dies before it has come to the rendezvous. SIGTERM ends rank 0, which waits for it there;
// it needs no SIGKILL.
TEST_F(TrainStart, ARankThatDiesCostsOneGracePeriod) {
  const std::string train = in_build("lockstep") + " train " + settings("dies", "comm.timeout=60s");
  Launched job({"-n", "2", "--grace", "1s", "--", "sh", "-c",
                "[ $RANK = 0 ] && exec " + train + "; kill -QUIT $$"});
  EXPECT_EQ(job.wait(), 128 + SIGQUIT) << job.err();
  EXPECT_THAT(job.err(), Not(HasSubstr("SIGKILL")));
  EXPECT_TRUE(job.leaves_nobody());
}

class TrainHangs : public testing::TrainRanks {
 protected:
  // Three workers that do not wait for each other, of which rank 0, with the server, is stopped.
  pid_t start_and_stop_leader(const std::string& dir, const std::string& more) {
    const pid_t launcher =
        start(settings(dir,
                       "parallel.strategy=parameter_server parallel.consistency=asp "
                       "train.global_batch_size=6 train.steps=100000 --ranks 3 --max-restarts 0 " +
                           more));
    wait_for_step(dir, "\"step\":5");
    const auto leader = ranks(dir, "0");
    EXPECT_EQ(leader.size(), 1u);
    ::kill(leader.front(), SIGSTOP);
    return launcher;
  }
};

TEST_F(TrainHangs, AStoppedLeaderEndsTheJobAndIsNamed) {
  const pid_t launcher = start_and_stop_leader("stopped", "comm.timeout=2s --grace 500ms");
  const int status = wait_for(launcher);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1) << text_of(folder / "log.txt");
  const std::string log = text_of(folder / "log.txt");
  const std::string last = log.substr(log.rfind('\n', log.size() - 2) + 1);
  EXPECT_THAT(last, ::testing::StartsWith("lockstep: the job failed: rank 0 (pid "));
  EXPECT_THAT(last, HasSubstr("is at fault")) << log;
  expect_nobody_left("stopped");
}

TEST_F(TrainHangs, AStoppedLeaderEndsWhenTheLauncherIsAskedTo) {
  const pid_t launcher = start_and_stop_leader("asked", "");
  ::kill(launcher, SIGTERM);
  const int status = wait_for(launcher);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 75) << text_of(folder / "log.txt");
  expect_nobody_left("asked");
}

}  // namespace
}  // namespace lockstep
