#include "lockstep/live/report_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/live/page.h"
#include "lockstep/train/observe/metrics_line.h"
#include "tests/live/live_run.h"

namespace lockstep::live {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The messages in a frozen page, by type; series by table.
std::map<std::string, Json> data_of(const std::string& page) {
  constexpr std::string_view kBegin = "<script type=\"application/json\" id=\"data\">";
  const auto begin = page.find(kBegin) + kBegin.size();
  const std::string text = page.substr(begin, page.find("</script>", begin) - begin);
  std::map<std::string, Json> messages;
  for (const Json& message : Json::parse(text)) {
    const std::string type = message["type"];
    messages[type == "series" ? message["table"].get<std::string>() : type] = message;
  }
  return messages;
}

class ReportFile : public LiveRun {
 protected:
  ReportFile() { observers_.push_back(make_report()); }

  train::RunFacts told() const {
    train::RunFacts these = facts();
    these.model = "gpt2 <script>alert('model')</script>";
    these.config = "text = \"</script><b>\"\n";
    these.step_flops = 1e9;
    these.peak_flops = 8e9;
    these.step_tokens = 512;
    these.memory = {{"parameters", 1, 1 << 20}, {"activations <layer>", 3, 1 << 20}};
    these.memory_bytes = 4 << 20;
    return these;
  }
  std::string page() const { return bytes_of(report_path(folder_)); }
};

TEST_F(ReportFile, HasTheFiguresOfTheRunFromTheBeginningOn) {
  begin(told());
  auto data = data_of(page());
  EXPECT_EQ(data["status"]["rows"], 0);
  EXPECT_EQ(data["run"]["facts"]["memory_bytes"], 4 << 20);
  for (std::int64_t i = 1; i <= 20; ++i) {
    train::StepRecord one = record(i);
    if (i % 5 == 0) {
      one.validation_loss = 3 - 0.1 * static_cast<double>(i);
      one.validation_seconds = 1;
      one.checkpoint_seconds = 0.5;
    }
    step(one);
  }
  sample(20, "once <i>upon</i> a </script> time");
  end({.seconds = 15});
  data = data_of(page());
  EXPECT_EQ(data["status"]["state"], "finished");
  // 20 steps of 512 tokens in 0.25 s and 0.125 s for data at 1 GFLOP each, and so on.
  const Json seconds = data["status"]["seconds"];
  EXPECT_DOUBLE_EQ(seconds["computing"], 5);
  EXPECT_DOUBLE_EQ(seconds["waiting for data"], 2.5);
  EXPECT_DOUBLE_EQ(seconds["checkpoints"], 2);
  EXPECT_DOUBLE_EQ(seconds["validation"], 4);
  EXPECT_NEAR(seconds["other"].get<double>(), 1.5, 1e-9);
  EXPECT_NEAR(data["status"]["utilization"].get<double>(), 1 / 0.375 / 8, 1e-9);
  EXPECT_EQ(data["status"]["best_validation"]["step"], 20);
  // Its figures agree with each other, and with the metrics.
  EXPECT_EQ(data["status"]["loss"], data["steps"]["columns"]["loss"].back());
  EXPECT_EQ(data["status"]["step"], data["steps"]["step"].back());
  EXPECT_EQ(data["status"]["tokens"], data["steps"]["tokens"].back());
  EXPECT_EQ(data["status"]["validation"]["loss"],
            data["validations"]["columns"]["val_loss"].back());
  EXPECT_EQ(data["samples"]["samples"][0]["text"], "once <i>upon</i> a </script> time");
}

TEST_F(ReportFile, IsWrittenAgainWhileARunIsBusyWithAStep) {
  observers_.back() = make_report(std::chrono::milliseconds(5));
  begin(told());
  // Observers get no more events, only the files grow, as in a step that takes minutes.
  for (std::size_t i = 0; i + 1 < observers_.size(); ++i) observers_[i]->step(record(1));
  std::size_t polls = 0;
  while (data_of(page())["status"]["rows"] != 1) {
    ASSERT_LT(++polls, 100'000u);
    std::this_thread::yield();
  }
  EXPECT_THAT(page(), HasSubstr("</html>"));
  end({.seconds = 1});
  EXPECT_EQ(data_of(page())["status"]["state"], "finished");
}

TEST_F(ReportFile, NeedsNothingElse) {
  begin(told());
  end({.seconds = 1});
  for (const char* reference : {"http:", "https:", "src=", "@import", "url(", "//cdn"}) {
    EXPECT_THAT(page(), Not(HasSubstr(reference)));
  }
  EXPECT_THAT(page(), HasSubstr("default-src 'none'"));
  EXPECT_EQ(occurrences(page(), "href="), 1U);
  EXPECT_THAT(page(), HasSubstr("href=\"data:,\""));
}

TEST_F(ReportFile, ShowsTextAsText) {
  begin(told());
  sample(1, "</script><script>alert(1)</script>");
  for (const auto& one : observers_) one->warning("<img onerror=alert(2)>");
  end({train::RunEnd::Reason::kFailed, "<disk> full", 15});
  EXPECT_EQ(occurrences(page(), "<script"), 2U);
  EXPECT_EQ(occurrences(page(), "</script"), 2U);
  EXPECT_THAT(page(), Not(HasSubstr("<img")));
  EXPECT_THAT(page(), HasSubstr("<title>gpt2 &lt;script&gt;"));
  EXPECT_EQ(data_of(page())["status"]["message"], "<disk> full");
}

TEST_F(ReportFile, TellsOfWhatCameBeforeAResume) {
  std::string before;
  for (std::int64_t step = 1; step <= 14; ++step) {
    before += train::metrics_line(record(step), false);
  }
  write_file(folder_ / "metrics.jsonl", before);
  write_file(folder_ / "samples.jsonl",
             "{\"step\":10,\"text\":\"of the tenth\"}\n{\"step\":12,\"text\":\"done again\"}\n");
  train::RunFacts these = told();
  these.first_step = 11;
  begin(these);
  steps(11, 20);
  end({train::RunEnd::Reason::kInterrupted, "", 10});
  auto data = data_of(page());
  EXPECT_EQ(data["status"]["state"], "interrupted");
  EXPECT_EQ(data["status"]["rows"], 20);
  EXPECT_EQ(data["status"]["tokens"], 20 * 512);
  EXPECT_THAT(page(), HasSubstr("of the tenth"));
  EXPECT_THAT(page(), Not(HasSubstr("done again")));
  // The last 10 steps of 0.375 s leave 6.25 s of 10 s.
  EXPECT_NEAR(data["status"]["seconds"]["other"].get<double>(), 6.25, 1e-9);
}

TEST_F(ReportFile, AFolderThatIsNotThereIsAnErrorAtTheBeginning) {
  train::RunFacts these = told();
  these.folder = folder_ / "absent";
  EXPECT_THROW(make_report()->begin(these), Error);
}

TEST(LivePage, CarriesItsNonceAndNoData) {
  const std::string page = live_page("abc123");
  EXPECT_THAT(page, HasSubstr("<style nonce=\"abc123\">"));
  EXPECT_THAT(page, HasSubstr("<script nonce=\"abc123\">"));
  EXPECT_THAT(page, HasSubstr("id=\"data\"></script>"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  EXPECT_EQ(occurrences(page, " style=\""), 0U) << "its policy would refuse them";
}

}  // namespace
}  // namespace lockstep::live
