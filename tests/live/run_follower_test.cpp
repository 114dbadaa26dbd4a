#include "lockstep/live/run_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/file/file.h"
#include "lockstep/train/observe/job_log.h"
#include "lockstep/train/run_folder.h"
#include "tests/live/live_run.h"

namespace lockstep::live {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A reader as the page is one: it applies messages.
struct NewsOfARun {
  RunFollower::Seen seen;
  Json run, status, ranks, timeline;
  Json log = Json::array(), samples = Json::array();
  std::vector<double> step, loss;
  std::vector<std::string> types;  // of the last news

  void read(const RunFollower& follower) {
    types.clear();
    for (const std::string& text : follower.news(seen)) {
      EXPECT_EQ(text.find('\n'), std::string::npos);
      const Json message = Json::parse(text);
      EXPECT_EQ(message["run"], follower.id());
      const std::string type = message["type"];
      types.push_back(type);
      if (type == "run") run = message;
      if (type == "status") status = message;
      if (type == "ranks") ranks = message["ranks"];
      if (type == "timeline") timeline = message;
      if (type == "log") append(log, message["from"], message["lines"]);
      if (type == "samples") append(samples, message["from"], message["samples"]);
      if (type == "series" && message["table"] == "steps") {
        const std::size_t from = message["from"];
        step.resize(from);
        loss.resize(from);
        for (const Json& one : message["step"]) step.push_back(one);
        if (message["columns"].contains("loss")) {
          for (const Json& one : message["columns"]["loss"]) loss.push_back(one);
        }
      }
    }
  }

 private:
  static void append(Json& list, std::size_t from, const Json& items) {
    if (from == 0) list = Json::array();
    for (const Json& one : items) list.push_back(one);
  }
};

class FollowedRun : public LiveRun {
 protected:
  void follow() {
    while (follower_.poll(1 << 20)) {
    }
    reader_.read(follower_);
  }
  RunFollower follower_{"a/b \"c\"", folder_};
  NewsOfARun reader_;
};

TEST_F(FollowedRun, LinesOfRanksAreNewsOfTheLogAlone) {
  train::JobLog job(folder_);
  begin(facts());
  follow();
  job.add_output(3, "a line");
  follow();
  EXPECT_THAT(reader_.types, ElementsAre("log"));
  EXPECT_EQ(reader_.log[1]["rank"], 3);
  EXPECT_EQ(reader_.log[1]["text"], "a line");
  EXPECT_EQ(reader_.status["state"], "gone") << "the test holds no lock";
}

TEST_F(FollowedRun, NewsTellAReaderEverythingOnce) {
  follow();
  EXPECT_EQ(reader_.status["state"], "waiting");
  train::RunFacts these = facts();
  these.workers = 2;
  these.strategy = "ddp";
  these.config = "a = \"</script>\"\n";
  these.memory = {{"parameters", 2, 100}};
  for (const auto& one : observers_) one->notice("before it began");
  begin(these);
  steps(1, 4);
  sample(4, "once\nupon \xff");
  follow();
  EXPECT_EQ(reader_.run["facts"]["config"], these.config);
  EXPECT_EQ(reader_.run["facts"]["memory"][0]["bytes"], 200);
  EXPECT_THAT(reader_.step, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(reader_.loss, ElementsAre(4, 2, 4.0 / 3, 1));
  EXPECT_EQ(reader_.status["step"], 4);
  EXPECT_EQ(reader_.status["validation"], nullptr);
  EXPECT_EQ(reader_.samples[0]["text"], "once\nupon \xEF\xBF\xBD");
  EXPECT_EQ(reader_.log[0]["event"], "begin");
  EXPECT_EQ(reader_.log[1]["text"], "before it began");
  follow();
  EXPECT_THAT(reader_.types, IsEmpty()) << "nothing is new";
  steps(5, 5);
  follow();
  EXPECT_THAT(reader_.types, UnorderedElementsAre("series", "series", "status"));
  EXPECT_THAT(reader_.step, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(reader_.status["validation"]["loss"], 2.5);
  for (const auto& one : observers_) one->warning("a disk is full");
  end({.reason = train::RunEnd::Reason::kFailed, .message = "no <luck>", .seconds = 9});
  follow();
  EXPECT_EQ(reader_.status["state"], "failed");
  EXPECT_EQ(reader_.status["message"], "no <luck>");
  EXPECT_EQ(reader_.log.size(), 4u);
  // 9 s in all, 5 steps of 0.375 s.
  double seconds = 0;
  for (const auto& [name, one] : reader_.status["seconds"].items()) seconds += one.get<double>();
  EXPECT_NEAR(seconds, 9, 1e-9);
}

TEST_F(FollowedRun, AResumedRunIsOneRun) {
  begin(facts());
  steps(1, 8);
  sample(6, "done again");
  end({.reason = train::RunEnd::Reason::kInterrupted, .seconds = 4});
  follow();
  EXPECT_EQ(reader_.status["state"], "interrupted");
  begin(facts(5));  // steps 5 to 8 are repeated
  steps(5, 6);
  follow();
  EXPECT_THAT(reader_.step, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(reader_.status["rows"], 6);
  EXPECT_EQ(reader_.run["begins"].size(), 2u);
  EXPECT_EQ(reader_.run["begins"][1]["first_step"], 5);
  EXPECT_THAT(reader_.samples, IsEmpty());
  EXPECT_EQ(reader_.log.size(), 3u) << "begin, end, begin";
}

TEST_F(FollowedRun, IsRunningWhileItsProcessHasTheFolder) {
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directory(folder_);
  {
    train::RunFolder lock(folder_);
    lock.begin("");
    begin(facts());
    steps(1, 2);
    EXPECT_TRUE(is_locked(folder_));
    follow();
    EXPECT_EQ(reader_.status["state"], "running");
    EXPECT_GT(reader_.status["seconds_left"], 0);
    // Whoever asks leaves the lock alone: another process still finds it taken, and then free.
    EXPECT_THROW(train::RunFolder{folder_}, Error);
  }
  EXPECT_FALSE(is_locked(folder_));
  follow();
  EXPECT_EQ(reader_.status["state"], "gone") << "no event says that it ended";
  EXPECT_EQ(reader_.status["seconds_left"], 0);
}

TEST_F(FollowedRun, IsOfAnotherMachineAsLongAsItIsHeardOf) {
  RunEvents events;
  EXPECT_TRUE(events.add(R"({"event":"begin","time":1,"host":"elsewhere","pid_space":"pid:[1]"})"));
  EXPECT_EQ(state_of(events, folder_, 3), RunState::kRunning);
  EXPECT_EQ(state_of(events, folder_, 1e4), RunState::kUnknown);
  EXPECT_TRUE(events.add(R"({"event":"end","reason":"finished","seconds":2})"));
  EXPECT_EQ(state_of(events, folder_, 1e4), RunState::kFinished);
  for (const char* line : {"", "[]", "{}", "{\"event\":3}", "{\"event\":\"begin\"", "x"}) {
    EXPECT_FALSE(events.add(line)) << line;
  }
}

TEST_F(FollowedRun, CostsOfRanksAreMeansOfTheLastSteps) {
  train::RunFacts these = facts();
  these.workers = 4;
  begin(these);
  for (std::int64_t i = 1; i <= 30; ++i) {
    train::StepRecord one = record(i);
    for (int rank = 0; rank < 4; ++rank) {
      one.metrics.costs.push_back({.compute_seconds = rank == 2 ? 0.3 : 0.1,
                                   .communication_seconds = 0.02,
                                   .exposed_seconds = 0.01 * rank,
                                   .elapsed_seconds = 0.35,
                                   .known = rank != 3});
    }
    step(one);
  }
  end({.seconds = 1});
  follow();
  EXPECT_EQ(reader_.ranks["step"], 30);
  EXPECT_EQ(reader_.ranks["workers"].size(), 4u);
  EXPECT_EQ(reader_.ranks["workers"][3], nullptr);
  EXPECT_NEAR(reader_.ranks["workers"][2]["compute_ms"].get<double>(), 300, 1e-9);
  EXPECT_NEAR(reader_.ranks["workers"][1]["exposed_ms"].get<double>(), 10, 1e-9);
  EXPECT_EQ(reader_.ranks["straggler"]["rank"], 2);
}

TEST_F(FollowedRun, DamagedFilesAreNoError) {
  for (const char* name :
       {"facts.json", "ranks.json", "log.jsonl", "samples.jsonl", "metrics.jsonl", "trace.json"}) {
    std::ofstream(folder_ / name) << "{\"step\":[1,2]}\n\xff\xfe}{\n[]\n{\"event\":1}\n"
                                  << std::string(100, '{') << '\n';
  }
  follow();
  EXPECT_EQ(reader_.status["rows"], 0);
  EXPECT_THAT(reader_.samples, IsEmpty());
  EXPECT_EQ(reader_.run["facts"], nullptr);
  EXPECT_EQ(reader_.timeline["svg"], "");
}

TEST_F(FollowedRun, APartOfItHasTheStepsInFull) {
  begin(facts());
  steps(1, 20);
  follow();
  const Json part = Json::parse(follower_.part(MetricsFollower::Axis::kStep, 4.5, 10.5, 1000));
  EXPECT_EQ(part["steps"]["step"], Json::parse("[5,6,7,8,9,10]"));
  EXPECT_EQ(part["steps"]["columns"]["loss"][1], 4.0 / 6);
  EXPECT_EQ(part["validations"]["step"], Json::parse("[5,10]"));
  std::filesystem::remove(folder_ / "metrics.jsonl");
  EXPECT_EQ(follower_.part(MetricsFollower::Axis::kStep, 1, 2, 10), "null");
}

}  // namespace
}  // namespace lockstep::live
