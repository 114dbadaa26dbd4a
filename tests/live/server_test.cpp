#include "lockstep/live/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/live/http_client.h"
#include "tests/live/live_run.h"

namespace lockstep::live {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

class LiveServer : public LiveRun {
 protected:
  void serve() {
    runs_.emplace(folder_, Runs::Kind::kAny);
    runs_->catch_up();
    runs_->follow();
    server_.emplace(*runs_, ServerOptions{.token = kToken});
    thread_ = std::thread([this] { server_->serve(); });
  }
  ~LiveServer() override { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    runs_->stop();
    server_->stop();
    thread_.join();
  }
  HttpAnswer get(const std::string& target, const std::string& more = "") {
    const char* joint = target.find('?') == std::string::npos ? "?" : "&";
    return http_get(server_->port(), target + joint + "token=" + kToken, more);
  }

  std::optional<Runs> runs_;
  std::optional<Server> server_;
  std::thread thread_;
};

TEST_F(LiveServer, NeedsTheToken) {
  begin(facts());
  serve();
  EXPECT_EQ(get("/").status, 200);
  const int port = server_->port();
  const std::string bearer = "Authorization: Bearer " + std::string(kToken) + "\r\n";
  EXPECT_EQ(http_get(port, "/metrics", bearer).status, 200);
  const std::string wrong = "0123456789abcdef0123456789abcdee";
  for (const char* target : {"/", "/metrics", "/api/news", "/api/part", "/nothing"}) {
    EXPECT_EQ(http_get(port, target).status, 403) << target;
    EXPECT_EQ(http_get(port, std::string(target) + "?token=").status, 403) << target;
    EXPECT_EQ(http_get(port, std::string(target) + "?token=" + wrong).status, 403) << target;
    EXPECT_EQ(http_get(port, target, "Authorization: Bearer " + wrong + "\r\n").status, 403);
    EXPECT_EQ(http_get(port, target, "Authorization: Basic " + std::string(kToken) + "\r\n").status,
              403);
  }
  EXPECT_THAT(http_get(port, "/").body, Not(HasSubstr(kToken)));
}

TEST_F(LiveServer, KnowsItsOwnNamesOnly) {
  begin(facts());
  serve();
  const auto status = [&](const std::string& headers) {
    HttpConnection connection(server_->port());
    connection.send(std::string("GET /?token=") + kToken + " HTTP/1.1\r\n" + headers + "\r\n");
    return connection.answer().status;
  };
  EXPECT_EQ(status("Host: localhost:8080\r\n"), 200);
  EXPECT_EQ(status("Host: 127.0.0.1\r\n"), 200);
  EXPECT_EQ(status("Host: rebound.example\r\n"), 403);
  EXPECT_EQ(status("Host: localhost.rebound.example:8080\r\n"), 403);
  EXPECT_EQ(status("Host: localhost\r\nHost: rebound.example\r\n"), 403);
  EXPECT_EQ(status(""), 403);
}

TEST_F(LiveServer, SendsAPageThatMayLoadNothing) {
  begin(facts());
  serve();
  const HttpAnswer page = get("/");
  EXPECT_THAT(page.head, AllOf(HasSubstr("default-src 'none'"), HasSubstr("frame-ancestors 'none'"),
                               HasSubstr("nosniff"), HasSubstr("no-referrer"),
                               HasSubstr("no-store"), HasSubstr("text/html")));
  const auto nonce = page.head.find("'nonce-") + 7;
  const std::string value = page.head.substr(nonce, page.head.find('\'', nonce) - nonce);
  EXPECT_THAT(page.body, HasSubstr("<script nonce=\"" + value + "\">"));
  EXPECT_THAT(get("/").head, Not(HasSubstr(value))) << "every page has its own";
}

TEST_F(LiveServer, ReadsNoFileForAnyRequest) {
  begin(facts());
  std::ofstream(folder_ / "secret.txt") << "of the folder";
  serve();
  for (const std::string target :
       {"/secret.txt", "/metrics.jsonl", "/../metrics.jsonl", "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/./metrics.jsonl", "/api/../metrics.jsonl",
        "/api/part/../../metrics.jsonl", "/report.html", "/\\..\\metrics.jsonl"}) {
    const HttpAnswer answer = get(target);
    EXPECT_TRUE(answer.status == 404 || answer.status == 400) << target << answer.status;
    EXPECT_THAT(answer.body, Not(HasSubstr("of the folder"))) << target;
    EXPECT_THAT(answer.body, Not(HasSubstr("root:"))) << target;
  }
  const std::string part = "&axis=step&from=0&to=9&points=10";
  EXPECT_EQ(get("/api/part?run=" + folder_.filename().string() + part).status, 200);
  for (const std::string& run :
       {std::string(".."), "../" + folder_.filename().string(), folder_.string(), std::string("."),
        std::string("/"), std::string("%2e%2e"), std::string("a%00b"), std::string()}) {
    EXPECT_EQ(get("/api/part?run=" + run + part).status, 404) << run;
  }
}

TEST_F(LiveServer, RefusesWhatItIsNotFor) {
  begin(facts());
  serve();
  const std::string target = std::string("/?token=") + kToken;
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"}) {
    HttpConnection connection(server_->port());
    connection.send(std::string(method) + " " + target +
                    " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    EXPECT_EQ(connection.answer().status, 405) << method;
  }
  EXPECT_EQ(get("/", "Range: bytes=0-1,0-1,0-1\r\n").status, 416);
  const std::string run = "run=" + folder_.filename().string();
  for (const char* query :
       {"&axis=step&from=0&to=9", "&axis=loss&from=0&to=9&points=9",
        "&axis=step&from=x&to=9&points=9", "&axis=step&from=0&to=inf&points=9",
        "&axis=step&from=0&to=9&points=0", "&axis=step&from=0&to=9&points=99999999",
        "&axis=step&from=0&to=9&points=nan"}) {
    EXPECT_EQ(get("/api/part?" + run + query).status, 400) << query;
  }
}

TEST_F(LiveServer, LimitsWhatItIsSent) {
  begin(facts());
  serve();
  const std::string much(1 << 16, 'x');
  for (const std::string& request :
       {"GET /" + much + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + much + "\r\n\r\n",
        "POST /?token=" + std::string(kToken) +
            " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n" + much,
        std::string("\r\n\r\n"), std::string("GET\r\n\r\n"), much,
        std::string("GET / HTTP/9.9\r\nHost: localhost\r\n\r\n"),
        std::string(64, '\0') + "\r\n\r\n"}) {
    HttpConnection connection(server_->port());
    connection.send(request);
    const HttpAnswer answer = connection.answer();
    EXPECT_TRUE(answer.status == 0 || answer.status >= 400) << answer.status;
    EXPECT_LT(answer.body.size(), 1000u);
  }
  EXPECT_EQ(get("/").status, 200) << "it serves others as before";
}

TEST_F(LiveServer, SendsNewsAsTheyCome) {
  begin(facts());
  steps(1, 3);
  serve();
  HttpConnection reader(server_->port());
  reader.get(std::string("/api/news?token=") + kToken);
  reader.read_until("\"step\":[1,2,3]");
  EXPECT_THAT(reader.read_until("\"loss\":1.3333333333333333"),
              AllOf(HasSubstr("text/event-stream"), HasSubstr("data: {\"type\":\"runs\""),
                    HasSubstr("\"type\":\"run\"")));
  steps(4, 5);
  // From the last bucket on, which might have changed.
  EXPECT_THAT(reader.read_until(",5],\"tokens\""), HasSubstr("\"step\":[3,4"));
  sample(5, "a text <b>");
  EXPECT_THAT(reader.read_until("a text <b>"), HasSubstr("\"type\":\"samples\""));
  end({.seconds = 1});
  EXPECT_THAT(reader.read_until("\"state\":\"finished\""), HasSubstr("\"event\":\"end\""));
  stop();
  EXPECT_THAT(reader.read_until("\"type\":\"end\""), HasSubstr("data: {\"type\":\"end\"}"));
}

TEST_F(LiveServer, HasRoomForOthersBesideReadersWhoDoNotRead) {
  begin(facts());
  serve();
  std::vector<std::unique_ptr<HttpConnection>> readers;
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    readers.push_back(std::make_unique<HttpConnection>(server_->port()));
    readers.back()->get(std::string("/api/news?token=") + kToken);
    refused += readers.back()->read_until("\r\n\r\n").starts_with("HTTP/1.1 503") ? 1 : 0;
  }
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(get("/metrics").status, 200);
}

TEST_F(LiveServer, SaysThatAPortIsTaken) {
  begin(facts());
  serve();
  try {
    Server(*runs_, {.port = server_->port(), .token = kToken});
    FAIL() << "two servers share a port";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(std::to_string(server_->port())),
                                    HasSubstr("Choose another port")));
  }
  EXPECT_THROW(Server(*runs_, {.address = "192.0.2.1", .token = kToken}), Error);
  EXPECT_THROW(Server(*runs_, {.address = "no such host", .token = kToken}), Error);
}

TEST_F(LiveServer, StopsBeforeItServed) {
  begin(facts());
  Runs runs(folder_, Runs::Kind::kAny);
  Server server(runs, {.token = kToken});
  server.stop();
  server.serve();
  SUCCEED() << "it came back";
}

TEST(RunsOfAFolder, AreFoundAndKeepTheirOrder) {
  const ScratchFolder scratch;
  const auto add = [&](const std::string& name) {
    std::filesystem::create_directories(scratch.path() / name);
    std::ofstream(scratch.path() / name / "metrics.jsonl") << "{\"step\":1}\n";
  };
  EXPECT_THROW(Runs(scratch.path(), Runs::Kind::kAny), Error) << "there is none";
  EXPECT_THROW(Runs(scratch.path() / "absent", Runs::Kind::kAny), Error);
  add("a");
  add("group/b");
  add("far/too/deep");
  std::filesystem::create_directory(scratch.path() / "no-run");
  Runs runs(scratch.path(), Runs::Kind::kAny);
  ASSERT_EQ(runs.all().size(), 2u);
  EXPECT_NE(runs.find("a"), nullptr);
  EXPECT_NE(runs.find("group/b"), nullptr);
  EXPECT_EQ(runs.find("group"), nullptr);
  EXPECT_EQ(runs.find("far/too/deep"), nullptr);
  const auto before = runs.all();
  add("new");
  runs.catch_up();
  ASSERT_EQ(runs.all().size(), 3u);
  EXPECT_EQ(runs.all()[0]->id(), "new");
  EXPECT_EQ(runs.all()[1], before[0]);
  Runs one(scratch.path() / "a/", Runs::Kind::kAny);
  EXPECT_EQ(one.all()[0]->id(), "a");
  Runs to_come(scratch.path() / "later", Runs::Kind::kRunToCome);
  EXPECT_EQ(to_come.all()[0]->id(), "later");
}

}  // namespace
}  // namespace lockstep::live
