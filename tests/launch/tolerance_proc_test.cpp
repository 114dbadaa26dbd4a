// Jobs that continue without a rank.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/launch/launcher.h"

namespace lockstep {
namespace {

// The exit code of a job of three ranks that tolerates the loss of rank 2.
int code_of_tolerant_job(const std::string& script) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGINT, SIG_DFL);  // a background job of a shell may have been started to ignore it
    LaunchOptions options;
    options.command = {"sh", "-c", script};
    options.ranks_per_node = 3;
    options.bind = false;
    options.grace = std::chrono::milliseconds(50);
    options.tolerates_loss_of = [](int rank) { return rank == 2; };
    Pipe lifeline = make_pipe();
    std::_Exit(launch(options, std::move(lifeline.read_end)));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ToleratedLoss, LeavesTheOthersRunning) {
  const ScratchFolder folder;
  const std::string ready = (folder.path() / "ready").string();
  // The others end long after rank 2 has failed.
  EXPECT_EQ(code_of_tolerant_job(
                "if [ $RANK = 2 ]; then kill -9 $$; fi; sleep 0.5; echo $RANK >> " + ready),
            0);
  EXPECT_TRUE(std::filesystem::exists(ready));
}

TEST(ToleratedLoss, LeavesThoseThatStopTheirTime) {
  const ScratchFolder folder;
  const std::string ready = (folder.path() / "ready").string();
  EXPECT_EQ(code_of_tolerant_job(
                "trap '[ $RANK = 2 ] && exit 9; [ $RANK = 0 ] && sleep 0.5; exit 75' INT; : > " +
                ready + "$RANK; [ $RANK = 0 ] && until [ -e " + ready + "1 ] && [ -e " + ready +
                "2 ]; do sleep 0.01; done && kill -INT $PPID; while :; do sleep 0.05; done"),
            75);
}

TEST(ToleratedLoss, OfOneThatHangsIsNotWaitedForWhenTheOthersHaveStopped) {
  const ScratchFolder folder;
  const std::string ready = (folder.path() / "ready").string();
  EXPECT_EQ(code_of_tolerant_job(
                "trap '[ $RANK = 2 ] || exit 75' INT; trap '' TERM; : > " + ready +
                "$RANK; [ $RANK = 0 ] && until [ -e " + ready + "1 ] && [ -e " + ready +
                "2 ]; do sleep 0.01; done && kill -INT $PPID; while :; do sleep 0.05; done"),
            75);
}

TEST(ToleratedLoss, IsNotThatOfAnotherRank) {
  EXPECT_EQ(code_of_tolerant_job("[ $RANK = 2 ] && exit 9; [ $RANK = 1 ] && sleep 0.4 && exit 7; "
                                 "exec sleep 1000"),
            7);
}

TEST(ToleratedLoss, OfTheLastRankToEndIsNone) {
  EXPECT_EQ(code_of_tolerant_job("[ $RANK = 2 ] || exit 0; sleep 0.3; exit 5"), 0);
}

// It says by its last word that it ended because of a rank that the job needs.
TEST(ToleratedLoss, IsNotThatOfARankThatEndedBecauseOfANeededOne) {
  const std::string others = "; exec sleep 1000";
  EXPECT_EQ(
      code_of_tolerant_job("[ $RANK = 2 ] && echo '  at fault: rank 0' >&2 && exit 9" + others), 9);
  EXPECT_EQ(
      code_of_tolerant_job("[ $RANK = 2 ] && echo '  at fault: rank 2' >&2 && exit 9; exit 0"), 0);
}

}  // namespace
}  // namespace lockstep
