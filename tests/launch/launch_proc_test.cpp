// `lockstep launch` on one machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "launched.h"
#include "lockstep/base/system/cpu_set.h"
#include "tests/paths.h"

namespace lockstep::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::chrono_literals;

Launched shell(int ranks, const std::string& script, std::vector<std::string> flags = {}) {
  std::vector<std::string> arguments{"-n", std::to_string(ranks)};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return Launched(arguments);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Launch, TellsEveryRankItsPlace) {
  auto job = shell(3,
                   "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR "
                   "${MASTER_PORT:+port} $LOCKSTEP_RENDEZVOUS_HOSTED $EXTRA",
                   {"--env", "EXTRA=a=b"});
  EXPECT_EQ(job.wait(), 0);
  auto lines = lines_of(job.out());
  std::ranges::sort(lines);
  EXPECT_THAT(lines, ::testing::ElementsAre("[0] 0 3 0 3 0 127.0.0.1 port 1 a=b",
                                            "[1] 1 3 1 3 0 127.0.0.1 port 1 a=b",
                                            "[2] 2 3 2 3 0 127.0.0.1 port 1 a=b"));
  EXPECT_EQ(job.err(), "");
}

TEST(Launch, UnderstandsTorchrunsNames) {
  using Flags = std::vector<std::string>;
  for (Flags arguments :
       {Flags{"--nproc-per-node=2", "--nnodes=1", "--node-rank=0", "--rdzv-endpoint=localhost:0"},
        Flags{"--nproc_per_node=2", "--nnodes=1", "--node_rank=0",
              "--rdzv_endpoint=localhost:0"}}) {
    arguments.insert(arguments.end(), {"sh", "-c", "echo $RANK $WORLD_SIZE"});
    Launched job(arguments);
    EXPECT_EQ(job.wait(), 0) << job.err();
    auto lines = lines_of(job.out());
    std::ranges::sort(lines);
    EXPECT_THAT(lines, ::testing::ElementsAre("[0] 0 2", "[1] 1 2"));
  }
}

TEST(Launch, KeepsLinesWholeAndStreamsApart) {
  constexpr int kLines = 2000;
  auto job = shell(4,
                   "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); printf 'out'; echo \" $i\"; "
                   "printf 'err' >&2; echo \" $i\" >&2; done; printf last");
  EXPECT_EQ(job.wait(), 0);
  std::map<std::string, int> seen;
  for (const std::string& line : lines_of(job.out())) {
    ASSERT_TRUE(line.size() > 4 && line[0] == '[' && line.substr(2, 2) == "] ") << line;
    const std::string rank = line.substr(0, 3);
    const int next = ++seen[rank];
    EXPECT_EQ(line.substr(4), next > kLines ? "last" : fmt::format("out {}", next));
  }
  EXPECT_EQ(seen.size(), 4u);
  for (const auto& [rank, count] : seen) EXPECT_EQ(count, kLines + 1);
  EXPECT_EQ(lines_of(job.err()).size(), 4u * kLines);
  EXPECT_THAT(job.err(), Not(HasSubstr("out")));
}

TEST(Launch, CarriesLongLines) {
  auto job = shell(2, "head -c 200000 /dev/zero | tr '\\0' x");
  EXPECT_EQ(job.wait(), 0);
  const auto lines = lines_of(job.out());
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) EXPECT_EQ(line.size(), 200004u);
}

TEST(Launch, CanLeaveOutThePrefix) {
  auto job = shell(1, "echo plain", {"--no-prefix"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "plain\n");
}

TEST(Launch, PassesArgumentsAsTyped) {
  Launched job({"printf", "<%s>", "[a,b]", "", "--no-prefix", "-n", "3", "--", "a b"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "[0] <[a,b]><><--no-prefix><-n><3><--><a b>\n");
}

TEST(Launch, GivesStandardInputToRankZero) {
  Launched job({"-n", "2", "--", "cat"}, {}, "words\n");
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "[0] words\n");
}

TEST(Launch, NamesTheRankThatFailedWithItsLastWords) {
  auto job = shell(3,
                   "[ $RANK = 1 ] || exec sleep 1000; i=0; while [ $i -lt 30 ]; do i=$((i+1)); "
                   "echo word $i >&2; done; printf 'the very last' >&2; exit 3",
                   {"--grace", "50ms"});
  EXPECT_EQ(job.wait(), 3);
  const std::string err = job.err();
  EXPECT_THAT(err, HasSubstr("lockstep: rank 1 (pid "));
  EXPECT_THAT(
      err,
      HasSubstr(") exited with code 3\nlockstep: its last output was\nlockstep:   | word 22\n"));
  EXPECT_THAT(err, HasSubstr("lockstep:   | word 30\nlockstep:   | the very last\n"));
  EXPECT_THAT(err, Not(HasSubstr("| word 21\n")));
  EXPECT_THAT(lines_of(err).back(), StartsWith("lockstep: the job failed: rank 1 (pid "));
  EXPECT_TRUE(job.leaves_nobody());
}

TEST(Launch, NamesSignalsAndReturnsThemAsShellsDo) {
  auto job = shell(2, "[ $RANK = 1 ] && kill -SEGV $$; exec sleep 1000", {"--grace", "50ms"});
  EXPECT_EQ(job.wait(), 128 + SIGSEGV);
  EXPECT_THAT(job.err(), HasSubstr("was killed by SIGSEGV"));
}

TEST(Launch, BlamesTheFirstNotTheFollowers) {
  auto job = shell(4,
                   "echo $$ > $DIR/pid$RANK; until [ -s $DIR/pid2 ]; do sleep 0.01; done; "
                   "[ $RANK = 2 ] && kill -9 $$; read p < $DIR/pid2; "
                   "while kill -0 $p 2>/dev/null; do sleep 0.01; done; echo lost >&2; exit 1",
                   {"--grace", "30s"});
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_THAT(lines_of(job.err()).back(), StartsWith("lockstep: the job failed: rank 2 (pid "));
  EXPECT_THAT(job.err(), HasSubstr("then rank 0"));
}

TEST(Launch, KillsRanksThatDoNotListen) {
  auto job = shell(2,
                   "[ $RANK = 1 ] && { until [ -e $DIR/ready ]; do sleep 0.01; done; exit 5; }; "
                   "trap '' TERM; : > $DIR/ready; while :; do sleep 0.1; done",
                   {"--grace", "100ms"});
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(job.err(), HasSubstr("was killed by SIGKILL"));
  EXPECT_TRUE(job.leaves_nobody());
}

TEST(Launch, ForwardsSignals) {
  auto job =
      shell(2,
            "trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo hup' HUP; "
            "trap 'echo term; exit 0' TERM; : > $DIR/ready$RANK; while :; do sleep 0.05; done");
  ASSERT_TRUE(eventually([&] { return job.has_file("ready0") && job.has_file("ready1"); }));
  for (const auto& [signal, word] : std::initializer_list<std::pair<int, std::string>>{
           {SIGUSR1, "usr1"}, {SIGUSR2, "usr2"}, {SIGHUP, "hup"}, {SIGTERM, "term"}}) {
    job.signal(signal);
    for (const char* rank : {"[0] ", "[1] "}) {
      EXPECT_TRUE(eventually([&] { return job.out().find(rank + word) != std::string::npos; }));
    }
  }
  EXPECT_EQ(job.wait(), 0);
}

TEST(Launch, AnInterruptIsNotAFailureOfARank) {
  auto job = shell(2, ": > $DIR/ready$RANK; exec sleep 1000");
  ASSERT_TRUE(eventually([&] { return job.has_file("ready0") && job.has_file("ready1"); }));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGINT);
  EXPECT_THAT(job.err(), EndsWith("lockstep: interrupted by SIGINT\n"));
  EXPECT_THAT(job.err(), Not(HasSubstr("last output")));
}

// Rank 1 stops at once, rank 0 needs many times the grace period, as one does that saves.
TEST(Launch, WhoeverStopsInGoodOrderHasTheTimeItNeeds) {
  for (const auto& [last, code] : std::initializer_list<std::pair<std::string, int>>{
           {"exit 75", 75}, {"exit 1", 128 + SIGINT}}) {
    auto job = shell(2,
                     "trap '[ $RANK = 1 ] && exit 75; sleep 0.5; : > $DIR/saved; " + last +
                         "' INT; : > $DIR/ready$RANK; while :; do sleep 0.05; done",
                     {"--grace", "20ms"});
    ASSERT_TRUE(eventually([&] { return job.has_file("ready0") && job.has_file("ready1"); }));
    job.signal(SIGINT);
    EXPECT_EQ(job.wait(), code);
    EXPECT_TRUE(job.has_file("saved"));
    EXPECT_THAT(job.err(), EndsWith("lockstep: interrupted by SIGINT\n"));
    EXPECT_EQ(job.err().find("then rank 0") != std::string::npos, code != 75) << job.err();
  }
}

// Once a rank has failed, the others are no longer waited for.
TEST(Launch, AnInterruptThatARankFailsAtEndsTheJob) {
  auto job = shell(3,
                   "trap 'case $RANK in 0) ;; 1) exit 75;; 2) exit 4;; esac' INT; trap '' TERM; "
                   ": > $DIR/ready$RANK; while :; do sleep 0.05; done",
                   {"--grace", "20ms"});
  ASSERT_TRUE(eventually(
      [&] { return job.has_file("ready0") && job.has_file("ready1") && job.has_file("ready2"); }));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGINT);
  EXPECT_THAT(job.err(), HasSubstr("then rank 2"));
  EXPECT_TRUE(job.leaves_nobody());
}

TEST(Launch, ASecondInterruptKillsAtOnce) {
  auto job =
      shell(2, "trap 'echo stays' INT TERM; : > $DIR/ready$RANK; while :; do sleep 0.05; done",
            {"--grace", "1h"});
  ASSERT_TRUE(eventually([&] { return job.has_file("ready0") && job.has_file("ready1"); }));
  job.signal(SIGINT);
  ASSERT_TRUE(eventually([&] { return job.out().find("stays") != std::string::npos; }));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGINT);
  EXPECT_TRUE(job.leaves_nobody());
}

TEST(Launch, KillsWhatRanksLeaveBehind) {
  for (const std::string ending : {"exit 0", "exit 4", "kill -9 $$"}) {
    auto job =
        shell(2,
              "setsid sh -c 'sh -c \": > $DIR/deep$RANK; exec sleep 1000\" & exec sleep 1000'"
              " & until [ -e $DIR/deep$RANK ]; do sleep 0.01; done; " +
                  ending,
              {"--grace", "50ms"});
    EXPECT_NE(job.wait(), -1);
    EXPECT_TRUE(job.has_file("deep0"));
    EXPECT_TRUE(job.leaves_nobody()) << ending;
  }
}

TEST(Launch, NobodySurvivesALauncherThatIsKilled) {
  for (const bool kill_supervisor : {false, true}) {
    auto job = shell(2,
                     "setsid sh -c ': > $DIR/deep$RANK; exec sleep 1000' & trap '' TERM INT HUP; "
                     "while :; do sleep 0.1; done");
    ASSERT_TRUE(eventually([&] { return job.has_file("deep0") && job.has_file("deep1"); }));
    pid_t victim = job.pid();
    if (kill_supervisor) {
      std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", job.pid()));
      ASSERT_TRUE(children >> victim);
      ASSERT_GT(victim, 0);
    }
    ::kill(victim, SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
    EXPECT_TRUE(job.leaves_nobody());
  }
}

TEST(Launch, EndsWithTheReaderOfItsOutput) {
  Pipe pipe = make_pipe();
  SpawnRequest request;
  request.program = in_build("lockstep");
  request.arguments = {"lockstep", "launch", "-n", "2", "yes"};
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  request.standard_input = null.get();
  request.standard_output = pipe.write_end.get();
  request.standard_error = null.get();
  const pid_t pid = spawn(request);
  pipe.write_end.reset();
  char byte = 0;
  ASSERT_EQ(::read(pipe.read_end.get(), &byte, 1), 1);
  pipe.read_end.reset();
  int status = 0;
  ASSERT_TRUE(eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }));
  EXPECT_EQ(ExitStatus{status}.code(), 128 + SIGPIPE);
}

TEST(Launch, SaysWhyAProgramCannotRun) {
  Launched missing({"-n", "2", "--", "no-such-program"});
  EXPECT_EQ(missing.wait(), 127);
  EXPECT_THAT(missing.err(), HasSubstr("cannot find the command 'no-such-program'"));
  Launched folder({"-n", "2", "--", "/tmp"});
  EXPECT_EQ(folder.wait(), 126);
  Launched nothing({"-n", "2"});
  EXPECT_EQ(nothing.wait(), 2);
  Launched none({"-n", "0", "true"});
  EXPECT_EQ(none.wait(), 2);
  Launched odd({"--env", "NAME", "true"});
  EXPECT_EQ(odd.wait(), 2);
  EXPECT_THAT(odd.err(), HasSubstr("--env NAME=value"));
}

TEST(Launch, RefusesVariablesThatItSetsItself) {
  for (const std::string name : {"RANK", "NODE_RANK", "MASTER_PORT", "LOCKSTEP_TOKEN"}) {
    Launched job({"--env", name + "=7", "true"});
    EXPECT_EQ(job.wait(), 2);
    EXPECT_THAT(job.err(), HasSubstr("--env " + name + "=... has no effect"));
  }
}

TEST(Launch, BindsUnlessToldNotTo) {
  Launched help({"--help"});
  EXPECT_EQ(help.wait(), 0);
  EXPECT_THAT(help.out(), HasSubstr("--no-bind "));
  auto job = shell(2, "nproc", {"--no-bind"});
  EXPECT_EQ(job.wait(), 0);
  const std::string all = fmt::format("{}", CpuSet::of_this_thread().count());
  for (const std::string& line : lines_of(job.out())) EXPECT_EQ(line.substr(4), all);
}

TEST(Launch, HandsOverTheConfigurationFile) {
  ScratchFolder folder;
  const auto file = folder.path() / "run.toml";
  std::ofstream(file) << "x = 1\n";
  Launched job({"--config", file.string(), "--", "sh", "-c", "cat $LOCKSTEP_CONFIG"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "[0] x = 1\n");
  Launched missing({"--config", "/no/such/file", "true"});
  EXPECT_EQ(missing.wait(), 2);
}

TEST(Launch, TheTokenIsOnNoCommandLineAndInNoOutput) {
  auto job =
      shell(2,
            "[ $RANK = 0 ] && echo $LOCKSTEP_TOKEN > $DIR/draft && mv $DIR/draft $DIR/token; "
            "until [ -e $DIR/go ]; do sleep 0.01; done; exit 9",
            {"--grace", "50ms"});
  ASSERT_TRUE(eventually([&] { return job.has_file("token"); }));
  std::string token = read_text(job.folder() / "token");
  token.pop_back();
  ASSERT_EQ(token.size(), 64u);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    EXPECT_THAT(read_text(entry.path() / "cmdline"), Not(HasSubstr(token)));
  }
  job.touch("go");
  EXPECT_EQ(job.wait(), 9);
  EXPECT_THAT(job.out() + job.err(), Not(HasSubstr(token)));
}

// Rank 0 ends because of rank 1, which does not end.
TEST(Launch, ContinuesAStoppedRankThatItAsksToEnd) {
  auto job = shell(2,
                   "trap 'exit 75' TERM; : > $DIR/ready$RANK; [ $RANK = 0 ] && kill -STOP $$; "
                   "while :; do sleep 0.05; done");
  ASSERT_TRUE(eventually([&] { return job.has_file("ready0") && job.has_file("ready1"); }));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 75) << job.err();
}

TEST(Launch, BlamesTheRankThatOthersEndedBecauseOf) {
  auto job =
      shell(2,
            "if [ $RANK = 1 ]; then echo $$ > $DIR/part; mv $DIR/part $DIR/one; kill -STOP $$; fi; "
            "until grep -q ') T' /proc/$(cat $DIR/one)/stat; do sleep 0.01; done; "
            "echo '  at fault: rank 1' >&2; exit 3",
            {"--grace", "100ms"});
  EXPECT_EQ(job.wait(), 3) << job.err();
  const std::vector<std::string> lines = lines_of(job.err());
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.back(), StartsWith("lockstep: the job failed: rank 1 (pid "));
  EXPECT_THAT(lines.back(), HasSubstr(", stopped) is at fault: rank 0 (pid "));
  EXPECT_TRUE(job.leaves_nobody());
}

}  // namespace
}  // namespace lockstep::testing
