#include "lockstep/bench/collectives/job.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "lockstep/base/error.h"
#include "lockstep/bench/collectives/measure.h"
#include "tests/bench/fake_subject.h"

namespace lockstep::bench {
namespace {

using namespace std::chrono_literals;

TEST(FakeWorker, DISABLED_Serve) { EXPECT_EQ(serve_fake(), 0); }

class JobTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ("bench-job-" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override {
    jobs_.clear();
    std::filesystem::remove_all(folder_);
  }
  Job& start(const std::string& name, int ranks) {
    jobs_.push_back(std::make_unique<Job>(fake_job(name, ranks, meeting_.name, folder_)));
    connect_all(jobs_, meeting_, interrupt_, deadline_in(60s));
    return *jobs_.back();
  }
  static Task task(const std::string& flavour) {
    return {.bytes = 4096, .flavour = flavour, .warmup = 1, .iterations = 5};
  }
  auto run(Job& job, const std::string& flavour, std::chrono::milliseconds timeout = 60s) {
    return job.run(task(flavour), deadline_in(timeout), interrupt_);
  }

  std::filesystem::path folder_;
  Interrupt interrupt_;
  MeetingPoint meeting_ = open_meeting_point();
  std::vector<std::unique_ptr<Job>> jobs_;
};

TEST_F(JobTest, RunsTasksOnAllRanksAndChecksThem) {
  Job& job = start("a", 3);
  ASSERT_TRUE(job.ready()) << job.failure();
  for (int i = 0; i < 3; ++i) {
    const auto replies = run(job, "good");
    ASSERT_TRUE(replies) << job.failure();
    ASSERT_EQ(replies->size(), 3u);
    for (const Reply& reply : *replies) {
      EXPECT_EQ(reply.seconds.size(), 5u);
      EXPECT_EQ(reply.wrong, "");
    }
  }
}

TEST_F(JobTest, FindsWrongResults) {
  Job& job = start("a", 2);
  const auto replies = run(job, "wrong");
  ASSERT_TRUE(replies) << job.failure();
  EXPECT_NE(replies->at(1).wrong.find("rank 1: element 0"), std::string::npos);
}

TEST_F(JobTest, TellsWhichRankWasLostAndItsLastWords) {
  Job& job = start("a", 2);
  EXPECT_FALSE(run(job, "crash"));
  EXPECT_NE(job.failure().find("lost rank 1"), std::string::npos) << job.failure();
  EXPECT_NE(job.failure().find("rank 1 gives up"), std::string::npos) << job.failure();
  EXPECT_FALSE(run(job, "good"));
}

TEST_F(JobTest, TellsWhichRankHangs) {
  Job& job = start("a", 2);
  EXPECT_FALSE(run(job, "hang", 300ms));
  EXPECT_NE(job.failure().find("no answer from rank 0 and 1"), std::string::npos) << job.failure();
}

TEST_F(JobTest, TellsTheErrorOfARank) {
  Job& job = start("a", 2);
  EXPECT_FALSE(run(job, "throw"));
  EXPECT_NE(job.failure().find("rank 1: out of luck"), std::string::npos) << job.failure();
}

TEST_F(JobTest, AProgramThatIsNotThereFailsAtStart) {
  JobSpec spec{"b", 1, {{{"/no/such/program"}, {}}}};
  jobs_.push_back(std::make_unique<Job>(spec));
  connect_all(jobs_, meeting_, interrupt_, deadline_in(60s));
  EXPECT_NE(jobs_[0]->failure().find("cannot start /no/such/program"), std::string::npos)
      << jobs_[0]->failure();
}

TEST_F(JobTest, AJobThatNeverConnectsFailsAtTheDeadline) {
  jobs_.push_back(std::make_unique<Job>(JobSpec{"b", 1, {{{"sleep", "1000"}, {}}}}));
  connect_all(jobs_, meeting_, interrupt_, deadline_in(200ms));
  EXPECT_NE(jobs_[0]->failure().find("did not start in time"), std::string::npos);
}

TEST_F(JobTest, MeasuringGoesOnWithoutTheOnesThatFail) {
  start("a", 2);
  start("b", 2);
  start("c", 2);
  const std::vector<Implementation> implementations{
      {"good", "a", "good", "", false},         {"crashing", "b", "crash", "", true},
      {"unable", "a", "unable", "", false},     {"wrong", "c", "wrong", "", false},
      {"absent", "nowhere", "good", "", false}, {"fine", "a", "good", "", true}};
  const auto results =
      measure(implementations, jobs_, {.bytes = 1024}, 2, {.turns = 2, .seconds = 0.02}, interrupt_,
              [](const Implementation&, int) {});
  ASSERT_EQ(results.size(), 5u);
  EXPECT_TRUE(results[0].correct());
  EXPECT_TRUE(results[0].ratio_to_fastest_peer);
  EXPECT_GE(results[0].samples.size(), 6u);
  EXPECT_FALSE(results[1].correct());
  EXPECT_EQ(results[2].unsupported, "the fake cannot");
  EXPECT_NE(results[3].problem.find("wrong result"), std::string::npos);
  EXPECT_TRUE(results[4].correct());
}

// A bench that is interrupted, or killed outright, in the middle of a task takes all ranks with it:
// they hold the write end of a pipe, and its read end comes to its end.
class EndingTest : public ::testing::TestWithParam<int> {};

TEST_P(EndingTest, LeavesNoProcess) {
  int held[2];
  ASSERT_EQ(::pipe(held), 0);
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / ("bench-end-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  int started[2];
  ASSERT_EQ(::pipe(started), 0);
  const pid_t bench = ::fork();
  ASSERT_GE(bench, 0);
  if (bench == 0) {
    ::close(held[0]);
    try {
      const Interrupt interrupt;
      const MeetingPoint meeting = open_meeting_point();
      std::vector<std::unique_ptr<Job>> jobs;
      jobs.push_back(std::make_unique<Job>(fake_job("a", 2, meeting.name, folder)));
      connect_all(jobs, meeting, interrupt, deadline_in(60s));
      if (::write(started[1], "x", 1) != 1) ::_exit(9);
      const Task task{.bytes = 64, .flavour = "hang"};
      jobs[0]->run(task, deadline_in(600s), interrupt);
    } catch (const Error& error) {
      ::_exit(error.code() == ErrorCode::kAborted ? 0 : 8);
    }
    ::_exit(7);
  }
  ::close(held[1]);
  ::close(started[1]);
  char byte;
  ASSERT_EQ(::read(started[0], &byte, 1), 1);
  ::kill(bench, GetParam());
  int status = 0;
  ::waitpid(bench, &status, 0);
  if (GetParam() != SIGKILL) {
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(::read(held[0], &byte, 1), 0);  // blocks while any rank lives
  ::close(held[0]);
  ::close(started[0]);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Signals, EndingTest, ::testing::Values(SIGINT, SIGTERM, SIGKILL));

}  // namespace
}  // namespace lockstep::bench
