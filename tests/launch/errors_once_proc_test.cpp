// Errors that several ranks report, as the launcher prints them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/launch/launcher.h"

namespace lockstep::errors_once_test {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

struct Told {
  int exit_code = -1;
  std::vector<std::string> lines;  // of standard error, output before it

  std::size_t count(const std::string& line) const {
    return static_cast<std::size_t>(std::ranges::count(lines, line));
  }
};

// A job of ranks that run `script` and report failures in lines that begin with "oh: ".
Told job(int ranks, const std::string& script, bool tolerant = false) {
  const ScratchFolder folder;
  const std::string path = (folder.path() / "told").string();
  const pid_t pid = ::fork();
  if (pid == 0) {
    const UniqueFd file(::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600));
    ::dup2(file.get(), STDERR_FILENO);
    ::dup2(file.get(), STDOUT_FILENO);
    LaunchOptions options;
    options.command = {"sh", "-c", script};
    options.ranks_per_node = ranks;
    options.bind = false;
    options.prefix_output = false;
    options.grace = std::chrono::milliseconds(500);
    options.error_prefix = "oh: ";
    if (tolerant) options.tolerates_loss_of = [](int rank) { return rank != 0; };
    Pipe lifeline = make_pipe();
    std::_Exit(launch(options, std::move(lifeline.read_end)));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  Told told{.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .lines = {}};
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) told.lines.push_back(line);
  return told;
}

TEST(ErrorsOfRanks, ThatAllShareAreToldOnce) {
  for (const int ranks : {1, 2, 3, 4}) {
    const Told told = job(ranks, "echo 'oh: no room' >&2; exit 4");
    EXPECT_EQ(told.exit_code, 4);
    EXPECT_EQ(told.count("oh: no room"), 1u);
    EXPECT_EQ(told.lines.at(0), "oh: no room");
    EXPECT_THAT(told.lines.at(1),
                MatchesRegex("lockstep: rank [0-3] .pid [0-9]+. exited with code 4"));
    EXPECT_THAT(told.lines, Each(Not(AnyOf(HasSubstr("last output"), HasSubstr("then rank")))));
    if (ranks == 1) continue;
    EXPECT_THAT(told.lines,
                Contains(MatchesRegex("lockstep: ranks? [0-3, ]+ ended with the same error")));
  }
}

TEST(ErrorsOfRanks, ThatDifferAreAllTold) {
  const Told told = job(4, "echo \"oh: $((RANK / 2))\" >&2; exit $((RANK / 2 + 1))");
  EXPECT_EQ(told.count("oh: 0"), 1u);
  EXPECT_EQ(told.count("oh: 1"), 1u);
  const Told each = job(3, "echo \"oh: $RANK\" >&2; exit 1");
  for (const char* line : {"oh: 0", "oh: 1", "oh: 2"}) EXPECT_EQ(each.count(line), 1u) << line;
}

// What comes before an error, and what looks like one and is none, is handed out as it came.
TEST(ErrorsOfRanks, AreNothingButTheirLastLine) {
  const Told told =
      job(2,
          "echo words >&2; echo 'oh: not yet' >&2; echo more >&2; echo 'oh: now' >&2; "
          "exit 1");
  EXPECT_EQ(told.count("words"), 2u);
  EXPECT_EQ(told.count("oh: not yet"), 2u);
  EXPECT_EQ(told.count("more"), 2u);
  EXPECT_EQ(told.count("oh: now"), 1u);
  const Told longer =
      job(3, "echo 'oh: all of' >&2; echo '  these' >&2; echo '  those' >&2; exit 1");
  EXPECT_THAT(std::vector(longer.lines.begin(), longer.lines.begin() + 3),
              ElementsAre("oh: all of", "  these", "  those"));
  EXPECT_EQ(longer.count("  those"), 1u);
  const Told well = job(2, "echo 'oh: well' >&2");
  EXPECT_EQ(well.exit_code, 0);
  EXPECT_THAT(well.lines, ElementsAre("oh: well", "oh: well"));
}

TEST(ErrorsOfRanks, OfOneThatWasKilledAreItsLastWords) {
  const Told told = job(2, "[ $RANK = 1 ] || exec sleep 1000; echo words >&2; kill -9 $$");
  EXPECT_EQ(told.exit_code, 128 + SIGKILL);
  EXPECT_EQ(told.count("lockstep:   | words"), 1u);
  // A rank that died after its error has reported it.
  const Told late = job(2, "[ $RANK = 1 ] || exec sleep 1000; echo 'oh: no' >&2; kill -9 $$");
  EXPECT_EQ(late.count("oh: no"), 1u);
}

TEST(ErrorsOfRanks, EndAJobThatCouldDoWithoutSomeOfThem) {
  const Told told = job(3, "echo 'oh: nothing to read' >&2; exit 2", true);
  EXPECT_EQ(told.exit_code, 2);
  EXPECT_EQ(told.count("oh: nothing to read"), 1u);
  EXPECT_THAT(told.lines, Each(Not(HasSubstr("continues"))));
  EXPECT_THAT(told.lines.back(), HasSubstr("the job failed: rank 0 "));
  // Lost one after the other for the same reason, each has its report.
  const Told lost =
      job(3,
          "[ $RANK = 0 ] && exec sleep 1.4; sleep 0.$((RANK * 4)); echo 'oh: gone' >&2; "
          "exit 3",
          true);
  EXPECT_EQ(lost.exit_code, 0);
  EXPECT_EQ(lost.count("oh: gone"), 1u);
  EXPECT_EQ(lost.count("lockstep:   | oh: gone"), 1u);
  EXPECT_EQ(lost.count("lockstep: the job continues without rank 2"), 1u);
}

}  // namespace
}  // namespace lockstep::errors_once_test
