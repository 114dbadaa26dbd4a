// Real ranks that meet: under one launcher, two launchers as two nodes, and foreign launchers.
// The ranks are exchange_program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>

#include "launched.h"
#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/comm/rendezvous/rendezvous.h"
#include "lockstep/launch/world.h"
#include "tests/paths.h"

namespace lockstep::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

const std::string kExchange = in_build("tests/exchange_program");

// The end of a rank's script that began with "trap '...": it waits for a signal.
const std::string kWaits = "' INT TERM; : > $DIR/ready$LOCAL_RANK; while :; do sleep 0.01; done";

TEST(Strangers, DoNotDisturbARunningJob) {
  Launched job({"-n", "3", "--", kExchange});
  ASSERT_TRUE(eventually([&] { return job.has_file("address"); })) << job.err();
  const HostPort address = parse_host_port(read_text(job.folder() / "address"));
  std::vector<UniqueFd> strangers;
  const std::string noise(10000, '\x7f');
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(connect_tcp(address, deadline_in(10s)));
    const int fd = strangers.back().get();
    if (i % 3 == 0) ::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (i % 3 == 1) ::send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  EXPECT_THROW(exchange(address, mint_token(), "round 1", 0, 3, "evil", deadline_in(10s)), Error);
  job.touch("go");
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), HasSubstr("[2] 2 of 3 met stop 1 2"));
  EXPECT_THAT(job.err(), HasSubstr("dropped"));
}

class Nodes : public ::testing::Test {
 protected:
  Nodes() { address_ = format_host_port(listen_tcp({"127.0.0.1", 0}).address); }

  std::unique_ptr<Launched> start(int node, const std::vector<std::string>& command,
                                  std::vector<std::string> variables = {}, int ranks = 2) {
    std::vector<std::string> arguments{"--nodes",
                                       "2",
                                       "--node-rank",
                                       std::to_string(node),
                                       "--rendezvous",
                                       address_,
                                       "-n",
                                       std::to_string(ranks),
                                       "--grace",
                                       "100ms",
                                       "--join-timeout",
                                       "30s",
                                       "--"};
    arguments.insert(arguments.end(), command.begin(), command.end());
    variables.push_back("XDG_CONFIG_HOME=" + config_.path().string());
    return std::make_unique<Launched>(arguments, variables);
  }

  // Every rank of both nodes has set its trap.
  static void await_ready(std::initializer_list<Launched*> nodes) {
    for (Launched* node : nodes) {
      ASSERT_TRUE(eventually([&] { return node->has_file("ready0") && node->has_file("ready1"); }))
          << node->err();
    }
  }

  // Both its processes at once, as when a node goes down.
  static void kill_launcher(Launched& node) {
    pid_t supervisor = 0;
    std::ifstream(fmt::format("/proc/{0}/task/{0}/children", node.pid())) >> supervisor;
    ASSERT_GT(supervisor, 0);
    ::kill(node.pid(), SIGSTOP);
    ::kill(supervisor, SIGKILL);
    ::kill(node.pid(), SIGKILL);
  }

  ScratchFolder config_;
  ScratchFolder shared_;
  std::string address_;
};

TEST_F(Nodes, FormOneJob) {
  const std::string shared = "DIR=" + shared_.path().string();
  auto one = start(1, {"env", shared, kExchange});
  auto zero = start(0, {"env", shared, kExchange});
  std::ofstream(shared_.path() / "go").flush();
  EXPECT_EQ(zero->wait(), 0) << zero->err();
  EXPECT_EQ(one->wait(), 0) << one->err();
  EXPECT_THAT(zero->out(), HasSubstr("[1] 1 of 4 met stop 1 2 3"));
  EXPECT_THAT(one->out(), HasSubstr("[3] 3 of 4 met stop 1 2 3"));
}

TEST_F(Nodes, NameARankThatFailedElsewhere) {
  for (const int guilty : {0, 1}) {
    address_ = format_host_port(listen_tcp({"127.0.0.1", 0}).address);
    auto bad = start(guilty, {"sh", "-c", "[ $LOCAL_RANK = 1 ] && exit 7; exec sleep 1000"});
    auto good = start(1 - guilty, {"sleep", "1000"});
    EXPECT_EQ(good->wait(), 7);
    EXPECT_EQ(bad->wait(), 7);
    const std::string culprit =
        fmt::format("the job failed: rank {} on node {} (pid ", 2 * guilty + 1, guilty);
    EXPECT_THAT(good->err(), HasSubstr(culprit));
    EXPECT_THAT(bad->err(), HasSubstr(culprit));
    EXPECT_TRUE(good->leaves_nobody());
    EXPECT_TRUE(bad->leaves_nobody());
  }
}

TEST_F(Nodes, NoticeALauncherThatDied) {
  for (const int victim : {0, 1}) {
    address_ = format_host_port(listen_tcp({"127.0.0.1", 0}).address);
    auto dying = start(victim, {"sh", "-c", ": > $DIR/ready; exec sleep 1000"});
    auto other = start(1 - victim, {"sleep", "1000"});
    ASSERT_TRUE(eventually([&] { return dying->has_file("ready"); }));
    kill_launcher(*dying);
    EXPECT_EQ(other->wait(), 1);
    EXPECT_THAT(other->err(), HasSubstr(fmt::format("lost node {}", victim)));
    EXPECT_TRUE(other->leaves_nobody());
  }
}

TEST_F(Nodes, WaitForTheWholeJob) {
  auto zero = start(0, {"true"});
  auto one = start(1, {"sh", "-c", "until [ -e $DIR/go ]; do sleep 0.01; done; exit $LOCAL_RANK"});
  EXPECT_EQ(zero->wait(300ms), -1);
  one->touch("go");
  EXPECT_EQ(zero->wait(), 1);
  EXPECT_EQ(one->wait(), 1);
  EXPECT_THAT(zero->err(), EndsWith("exited with code 1\n"));
}

// Rank 0 has more to save than the grace period allows for.
TEST_F(Nodes, StopTogetherWhicheverIsInterrupted) {
  for (const int asked : {0, 1}) {
    for (const auto& [last, code] : std::initializer_list<std::pair<std::string, int>>{
             {"exit 75", 75}, {"exit 3", 128 + SIGINT}}) {
      address_ = format_host_port(listen_tcp({"127.0.0.1", 0}).address);
      const std::string command =
          "trap '[ $RANK = 0 ] || exit 75; sleep 0.5; : > $DIR/saved; " + last + kWaits;
      auto zero = start(0, {"sh", "-c", command});
      auto one = start(1, {"sh", "-c", command});
      await_ready({zero.get(), one.get()});
      (asked == 0 ? zero : one)->signal(SIGINT);
      EXPECT_EQ(zero->wait(), code) << zero->err();
      EXPECT_EQ(one->wait(), code) << one->err();
      EXPECT_TRUE(zero->has_file("saved"));
      const std::string words = fmt::format("interrupted on node {} by SIGINT", asked);
      for (Launched* node : {zero.get(), one.get()}) {
        EXPECT_THAT(node->err(), EndsWith("lockstep: " + words + "\n"));
        EXPECT_TRUE(node->leaves_nobody());
      }
      EXPECT_THAT((asked == 0 ? one : zero)->err(), HasSubstr(words + ": passing it on"));
    }
  }
}

// A signal that all launchers are sent is passed on once, and is no second one.
TEST_F(Nodes, ThatAreAllInterruptedInterruptTheirRanksOnce) {
  for (const int signal : {SIGINT, SIGTERM}) {
    address_ = format_host_port(listen_tcp({"127.0.0.1", 0}).address);
    const std::string command =
        "trap 'echo asked; until [ -e $DIR/go ]; do sleep 0.01; done; exit 75" + kWaits;
    auto zero = start(0, {"sh", "-c", command});
    auto one = start(1, {"sh", "-c", command});
    await_ready({zero.get(), one.get()});
    one->signal(signal);
    const auto has_said = [](const std::string& text, const char* word) {
      return text.find(word) != std::string::npos;
    };
    ASSERT_TRUE(eventually([&] { return has_said(zero->out(), "asked"); }));
    zero->signal(signal);
    ASSERT_TRUE(eventually([&] { return has_said(zero->err(), "already"); })) << zero->err();
    zero->touch("go");
    one->touch("go");
    EXPECT_EQ(zero->wait(), 75) << zero->err();
    EXPECT_EQ(one->wait(), 75) << one->err();
    EXPECT_EQ(zero->out().size(), std::string_view("[0] asked\n[1] asked\n").size()) << zero->out();
  }
}

TEST_F(Nodes, WaitForOneThatStopsUntilASecondInterrupt) {
  auto zero = start(0, {"sh", "-c", "trap '" + kWaits});
  auto one = start(1, {"sh", "-c", "trap 'exit 75" + kWaits});
  await_ready({zero.get(), one.get()});
  one->signal(SIGINT);
  EXPECT_EQ(one->wait(300ms), -1);
  one->signal(SIGINT);
  EXPECT_EQ(one->wait(), 128 + SIGINT);
  EXPECT_EQ(zero->wait(), 128 + SIGINT);
  EXPECT_TRUE(zero->leaves_nobody());
}

TEST_F(Nodes, DoNotWaitForALauncherThatDiedAfterItsRanksStopped) {
  auto zero = start(0, {"sh", "-c", "trap 'exit 75" + kWaits});
  auto one = start(1, {"sh", "-c",
                       "trap ': > $DIR/asked; until [ -e $DIR/go ]; do sleep 0.01; done; "
                       "exit 75" +
                           kWaits});
  await_ready({zero.get(), one.get()});
  zero->signal(SIGINT);
  ASSERT_TRUE(eventually([&] { return one->has_file("asked"); }));
  EXPECT_EQ(zero->wait(300ms), -1);  // its ranks end, the job does not
  kill_launcher(*zero);
  one->touch("go");
  EXPECT_EQ(one->wait(), 1) << one->err();
  EXPECT_THAT(one->err(), HasSubstr("lost node 0"));
}

// That exit code is a clean stop only after a request to stop.
TEST_F(Nodes, TakeAnUnaskedStopForAFailure) {
  auto zero = start(0, {"sh", "-c", "exit 75"});
  auto one = start(1, {"sleep", "1000"});
  EXPECT_EQ(zero->wait(), 75);
  EXPECT_EQ(one->wait(), 75);
  EXPECT_THAT(one->err(), HasSubstr("the job ends: rank"));
  EXPECT_THAT(one->err(), HasSubstr("the job failed: rank"));
}

TEST_F(Nodes, WithDifferentTokensAreToldHowToAgree) {
  auto zero = start(0, {"true"});
  auto one = start(1, {"true"}, {"LOCKSTEP_TOKEN=" + token_text(mint_token())});
  EXPECT_EQ(one->wait(), 1);
  EXPECT_THAT(one->err(), HasSubstr("have different tokens"));
  EXPECT_TRUE(eventually([&] { return zero->err().find("did not prove") != std::string::npos; }));
}

TEST_F(Nodes, WithDifferentNumbersOfRanksAreRefused) {
  auto zero = start(0, {"true"}, {}, 2);
  auto one = start(1, {"true"}, {}, 3);
  EXPECT_EQ(zero->wait(), 1);
  EXPECT_EQ(one->wait(), 1);
  EXPECT_THAT(one->err(), HasSubstr("give all nodes the same -n"));
}

TEST_F(Nodes, APortInUseIsNamed) {
  const Listener taken = listen_tcp({"127.0.0.1", 0});
  address_ = format_host_port(taken.address);
  auto zero = start(0, {"true"});
  EXPECT_EQ(zero->wait(), 1);
  EXPECT_THAT(zero->err(), HasSubstr(fmt::format("port {} is in use", taken.address.port)));
}

TEST_F(Nodes, SayThatTheyAreStillTryingAndWhy) {
  auto one = start(1, {"true"});
  EXPECT_TRUE(eventually([&] {
    return one->err().find("still trying: Connection refused") != std::string::npos;
  })) << one->err();
}

TEST_F(Nodes, NeedAPlaceToMeet) {
  Launched job({"--nodes", "2", "true"});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.err(), HasSubstr("--rendezvous HOST:PORT"));
  Launched stray({"--nodes", "2", "--node-rank", "2", "--rendezvous", "h:1", "true"});
  EXPECT_EQ(stray.wait(), 2);
}

class ForeignLauncher : public ::testing::TestWithParam<const char*> {};

TEST_P(ForeignLauncher, IsUnderstood) {
  const std::string program = std::string("/usr/bin/") + GetParam();
  if (!std::filesystem::exists(program)) GTEST_SKIP() << program << " is not installed";
  ScratchFolder folder;
  std::ofstream(folder.path() / "go").flush();
  // It is started by our launcher only for the sake of the test's bookkeeping.
  Launched job({"env",
                "-u",
                "RANK",
                "-u",
                "WORLD_SIZE",
                "-u",
                "LOCAL_RANK",
                "-u",
                "LOCAL_WORLD_SIZE",
                "-u",
                "GROUP_RANK",
                "-u",
                "GROUP_WORLD_SIZE",
                "-u",
                "MASTER_ADDR",
                "-u",
                "MASTER_PORT",
                "-u",
                "LOCKSTEP_RENDEZVOUS",
                "-u",
                "LOCKSTEP_RENDEZVOUS_HOSTED",
                "-u",
                "LOCKSTEP_TOKEN",
                "DIR=" + folder.path().string(),
                "XDG_CONFIG_HOME=" + folder.path().string(),
                "OMPI_ALLOW_RUN_AS_ROOT=1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                "OMPI_MCA_rmaps_base_oversubscribe=1",
                program,
                "-n",
                "3",
                kExchange});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), HasSubstr("2 of 3 met stop 1 2"));
}

INSTANTIATE_TEST_SUITE_P(Mpi, ForeignLauncher, ::testing::Values("mpirun.openmpi", "mpirun.mpich"),
                         [](const auto& launcher) {
                           return std::string(launcher.param).substr(7);
                         });

}  // namespace
}  // namespace lockstep::testing
