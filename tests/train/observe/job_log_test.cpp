#include "lockstep/train/observe/job_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/train/observe/run_record.h"
#include "tests/train/run/observed_run.h"

namespace lockstep::train {
namespace {

using EventJson = nlohmann::json;

class JobLogTest : public ObservedRun {
 protected:
  std::vector<EventJson> events() const {
    std::vector<EventJson> all;
    std::istringstream lines(bytes_of(log_path(folder_)));
    for (std::string line; std::getline(lines, line);) all.push_back(EventJson::parse(line));
    return all;
  }
};

TEST_F(JobLogTest, HoldsLinesUntilTheRunHasBegun) {
  JobLog log(folder_);
  log.add_output(1, "before");
  log.add_launcher("starting rank 1");
  EXPECT_FALSE(std::filesystem::exists(log_path(folder_)));
  const auto record = make_run_record();
  record->begin(facts());
  log.add_output(0, "is recorded by the run");
  log.add_output(std::nullopt, "stands by");
  const std::vector<EventJson> all = events();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0]["event"], "begin");
  EXPECT_EQ(all[1]["event"], "output");
  EXPECT_EQ(all[1]["rank"], 1);
  EXPECT_EQ(all[1]["text"], "before");
  EXPECT_GT(all[1]["time"], 1e9);
  EXPECT_EQ(all[2]["event"], "launcher");
  EXPECT_EQ(all[2]["text"], "starting rank 1");
  EXPECT_FALSE(all[3].contains("rank"));
}

TEST_F(JobLogTest, OfARunThatDoesNotBeginAgainChangesNothing) {
  make_run_record()->begin(facts());
  const std::string before = bytes_of(log_path(folder_));
  {
    JobLog log(folder_);
    log.add_output(1, "refused");
  }
  EXPECT_EQ(bytes_of(log_path(folder_)), before);
}

TEST_F(JobLogTest, IsBounded) {
  JobLog log(folder_);
  make_run_record()->begin(facts());
  log.add_output(2, std::string(3 * JobLog::kLongestLine, '\xff'));
  for (std::size_t i = 0; i < JobLog::kMostLines + 100; ++i) log.add_output(1, "again");
  const std::vector<EventJson> all = events();
  ASSERT_EQ(all.size(), 1 + 1 + JobLog::kMostLines + 1);
  EXPECT_EQ(all.back()["text"], "(its further lines are not recorded)");
}

}  // namespace
}  // namespace lockstep::train
