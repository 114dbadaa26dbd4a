// `lockstep watch`, and the page of a run in progress, over real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"
#include "tests/cli/train_command.h"
#include "tests/live/http_client.h"

namespace lockstep::live {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class WatchCommand : public lockstep::testing::TrainCommand {
 protected:
  // The rest of the first line in the log that has `before`, after it.
  std::string logged(const std::string& log, const std::string& before) const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      const std::string text = text_of(folder / log);
      const auto at = text.find(before);
      const auto end = at == std::string::npos ? at : text.find('\n', at);
      if (end != std::string::npos)
        return text.substr(at + before.size(), end - at - before.size());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "nothing with " << before << " in " << text_of(folder / log);
    return "";
  }

  struct Link {
    int port = 0;
    std::string token;
  };
  // Of "127.0.0.1:8080/?token=...".
  static Link parse(const std::string& link) {
    const auto colon = link.find(':');
    const auto token = link.find("token=");
    if (colon == std::string::npos || token == std::string::npos) return {};
    return {.port = std::atoi(link.c_str() + colon + 1), .token = link.substr(token + 6)};
  }

  pid_t watch(const std::string& arguments) const {
    return start_command("exec " + in_build("lockstep") + " watch " + arguments + " >" +
                         (folder / "watch.txt").string() + " 2>&1");
  }

  static int free_port() { return listen_tcp({.host = "127.0.0.1", .port = 0}).address.port; }

  // The value of one metric of the page.
  static double metric(const Link& link, const std::string& name) {
    const HttpAnswer answer = http_get(link.port, "/metrics?token=" + link.token);
    const auto at = answer.body.find("\n" + name + "{");
    return at == std::string::npos ? -1
                                   : std::stod(answer.body.substr(answer.body.find("} ", at) + 2));
  }
};

TEST_F(WatchCommand, ShowsARunInProgressAndItsEnd) {
  const pid_t run = start(settings("runs/a", "train.steps=1000000 checkpoint.every=0"));
  wait_for_step("runs/a", "\"step\":3");
  const pid_t watcher = watch((folder / "runs").string() + " --port 0");
  const Link link = parse(logged("watch.txt", "http://"));
  ASSERT_GT(link.port, 0);
  EXPECT_EQ(http_get(link.port, "/").status, 403);
  EXPECT_EQ(http_get(link.port, "/?token=" + link.token).status, 200);

  HttpConnection reader(link.port);
  reader.get("/api/news?token=" + link.token);
  EXPECT_THAT(reader.read_until("\"state\":\"running\""), HasSubstr("\"run\":\"a\""));
  const std::size_t steps = losses("runs/a").size();
  wait_for_step("runs/a", ("\"step\":" + std::to_string(steps + 20)).c_str());
  reader.forget();
  EXPECT_THAT(reader.read_until("\"type\":\"status\""), HasSubstr("\"table\":\"steps\""));
  ::kill(run, SIGKILL);
  wait_for(run);
  EXPECT_THAT(reader.read_until("\"state\":\"gone\""), HasSubstr("\"state\":\"gone\""));

  // The figures of the page are those of the file.
  const std::string text = text_of(folder / "runs/a/metrics.jsonl");
  const auto end = text.rfind("\n");
  const auto begin = text.rfind("\n", end - 1);
  const auto last = nlohmann::json::parse(text.substr(begin + 1, end - begin - 1));
  EXPECT_EQ(metric(link, "lockstep_loss"), last["loss"].get<double>());
  EXPECT_EQ(metric(link, "lockstep_steps_total"), last["step"].get<double>());
  EXPECT_EQ(metric(link, "lockstep_running"), 0);

  ::kill(watcher, SIGINT);
  const int status = wait_for(watcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(WatchCommand, ARunServesItsOwnPageUntilItEnds) {
  const int port = free_port();
  const pid_t run = start(
      settings("run", "train.steps=1000000 checkpoint.every=0 live.port=" + std::to_string(port)));
  const Link link = parse(logged("log.txt", "live page: http://"));
  EXPECT_EQ(link.port, port);
  wait_for_step("run", "\"step\":3");
  EXPECT_EQ(http_get(port, "/?token=" + link.token).status, 200);
  HttpConnection reader(port);
  reader.get("/api/news?token=" + link.token);
  reader.read_until("\"state\":\"running\"");
  ::kill(run, SIGTERM);
  EXPECT_EQ(WEXITSTATUS(wait_for(run)), 75);
  // The reader had the end of the run before the page went with it.
  EXPECT_THAT(reader.read_until("\"type\":\"end\""), HasSubstr("\"state\":\"interrupted\""));
  EXPECT_THROW(connect_tcp({.host = "127.0.0.1", .port = static_cast<std::uint16_t>(port)},
                           deadline_in(kPatience)),
               Error);
}

TEST_F(WatchCommand, ThePageOfAKilledRunGoesWithIt) {
  const int port = free_port();
  const pid_t run = start(settings("run",
                                   "train.steps=1000000 checkpoint.every=0 --ranks 2 "
                                   "live.port=" +
                                       std::to_string(port)));
  const Link link = parse(logged("log.txt", "live page: http://"));
  wait_for_step("run", "\"step\":3");
  HttpConnection reader(port);
  reader.get("/api/news?token=" + link.token);
  EXPECT_THAT(reader.read_until("\"type\":\"ranks\""), HasSubstr("\"workers\":2"));
  ::kill(run, SIGKILL);
  wait_for(run);
  reader.read_until("what never comes");
  EXPECT_TRUE(reader.ended());
}

TEST_F(WatchCommand, TheLogHasTheLinesOfEveryRankAndOfTheLauncher) {
  const auto outcome =
      lockstep::testing::shell("LOCKSTEP_LOG=info " + in_build("lockstep") + " train " +
                               settings("run", "train.steps=20 --ranks 2") + " 2>&1");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  const std::string log = text_of(folder / "run/log.jsonl");
  EXPECT_THAT(log, AllOf(HasSubstr("\"event\":\"output\",\"rank\":1,\"text\""),
                         HasSubstr("rank 1 of 2"), Not(HasSubstr("\"rank\":0"))));
  EXPECT_THAT(text_of(folder / "run/report.html"), HasSubstr("rank 1 of 2"));
}

TEST_F(WatchCommand, AReportIsThereAtEveryMoment) {
  const pid_t run = start(settings("run", "train.steps=1000000 checkpoint.every=0"));
  wait_for_step("run", "\"step\":1");
  const std::string during = text_of(folder / "run/report.html");
  EXPECT_THAT(during, AllOf(HasSubstr("\"state\":\"running\""), HasSubstr("</html>")));
  ::kill(run, SIGKILL);
  wait_for(run);
  EXPECT_THAT(text_of(folder / "run/report.html"), HasSubstr("</html>"));
}

TEST_F(WatchCommand, RefusesWhatItCannotServe) {
  using lockstep::testing::run_lockstep;
  auto refused = run_lockstep("watch " + (folder / "absent").string());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.text, HasSubstr("is no folder"));
  std::filesystem::create_directory(folder / "empty");
  refused = run_lockstep("watch " + (folder / "empty").string());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.text, HasSubstr("there is none in it"));

  const Listener taken = listen_tcp({.host = "127.0.0.1", .port = 0});
  const std::string port = std::to_string(taken.address.port);
  const auto run = run_lockstep("train " + settings("run", "train.steps=1 live.port=" + port));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.text, AllOf(HasSubstr("live.port = " + port), HasSubstr("another program uses")));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/config.toml")) << "nothing has begun";
  std::ofstream(folder / "token") << "short\n";
  refused =
      run_lockstep("watch " + folder.string() + " --token-file " + (folder / "token").string());
  EXPECT_EQ(refused.exit_code, 2);
}

}  // namespace
}  // namespace lockstep::live
