#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/train/observe/metrics_line.h"
#include "lockstep/train/observe/observer.h"
#include "lockstep/train/observe/report/chart.h"
#include "lockstep/train/observe/report/curve.h"
#include "tests/train/run/observed_run.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Curve, FewPointsStayAsTheyAre) {
  CurveBuilder curve;
  for (int step = 1; step <= 1000; ++step) curve.add(step, step % 7);
  const auto points = curve.points();
  ASSERT_EQ(points.size(), 1000U);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(points[static_cast<std::size_t>(i)].step, i + 1);
    EXPECT_EQ(points[static_cast<std::size_t>(i)].value, (i + 1) % 7);
  }
}

TEST(Curve, ASpikeAmongManyStepsStays) {
  for (const int steps : {1001, 2003, 100'003}) {
    CurveBuilder curve;
    for (int step = 1; step <= steps; ++step) {
      curve.add(step, step == steps / 3 ? 9 : step == steps / 2 ? -9 : step == steps ? 5 : 1);
    }
    const auto points = curve.points();
    EXPECT_LE(points.size(), CurveBuilder::kMostPoints);
    EXPECT_GE(points.size(), CurveBuilder::kMostPoints / 5);
    std::vector<std::pair<double, double>> spikes;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (i > 0) {
        EXPECT_GT(points[i].step, points[i - 1].step);
      }
      if (points[i].value != 1) spikes.emplace_back(points[i].step, points[i].value);
    }
    const std::vector<std::pair<double, double>> expected = {
        {steps / 3, 9}, {steps / 2, -9}, {steps, 5}};
    EXPECT_EQ(spikes, expected);
  }
}

TEST(Curve, WhatIsNoNumberIsAGapUnlessANeighbourHasAValue) {
  CurveBuilder curve;
  curve.add(1, 1);
  curve.add(2, std::nan(""));
  curve.add(3, std::numeric_limits<double>::infinity());
  curve.add(4, 2);
  ASSERT_EQ(curve.points().size(), 4U);
  EXPECT_TRUE(std::isnan(curve.points()[1].value));
  EXPECT_TRUE(std::isnan(curve.points()[2].value));

  CurveBuilder many;
  for (int step = 1; step <= 5000; ++step) many.add(step, step % 2 == 0 ? step : std::nan(""));
  for (const CurvePoint& point : many.points()) EXPECT_EQ(point.value, point.step);
}

TEST(Curve, AFadingMeanOfALineIsOnTheLine) {
  FadingMean mean(5);
  CurvePoint last;
  for (int step = 1; step <= 100; ++step) last = mean.add(step, 3 - 0.5 * step);
  EXPECT_NEAR(last.value, 3 - 0.5 * last.step, 1e-9);
  const CurvePoint same = mean.add(101, std::nan(""));
  EXPECT_EQ(same.value, last.value);
}

TEST(Chart, TicksAreRoundAndEncloseAllValues) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {0, 1}, {1.37, 4.29}, {0, 1e-3}, {-3, 7}, {0, 17'914}, {5, 5}, {0, 0}, {-1e-9, 1e300}}) {
    const Ticks ticks = ticks_around(low, high, 4);
    EXPECT_LE(ticks.first, low + ticks.distance * 1e-6);
    EXPECT_GE(ticks.last(), high - ticks.distance * 1e-6);
    EXPECT_GE(ticks.count, 3);
    EXPECT_LE(ticks.count, 8);
    const double leading = ticks.distance / std::pow(10, std::floor(std::log10(ticks.distance)));
    EXPECT_TRUE(std::abs(leading - 1) < 1e-9 || std::abs(leading - 2) < 1e-9 ||
                std::abs(leading - 5) < 1e-9 || std::abs(leading - 10) < 1e-9)
        << leading;
  }
}

TEST(Chart, LabelsHaveTheDigitsTheyNeed) {
  EXPECT_EQ(tick_label(1.5, 0.5), "1.5");
  EXPECT_EQ(tick_label(2, 0.5), "2.0");
  EXPECT_EQ(tick_label(0.1 + 0.2, 0.1), "0.3");
  EXPECT_EQ(tick_label(1e-20, 0.1), "0");
  EXPECT_EQ(tick_label(0.0004, 0.0002), "0.0004");
  EXPECT_EQ(tick_label(4e-5, 2e-5), "4e-05");
  EXPECT_EQ(tick_label(15'000, 5'000), "15,000");
  EXPECT_EQ(tick_label(-2, 1), "-2");
  EXPECT_EQ(tick_label(2.5e6, 5e5), "2.5 M");
}

TEST(Chart, DrawsGapsAndPointsThatStandAlone) {
  const double gap = std::nan("");
  const std::string svg =
      draw_chart({.title = "a \"b\"",
                  .curves = {{"loss", "blue", {{1, 0}, {2, gap}, {3, 1}, {4, 1}}, false}},
                  .last_step = 4,
                  .width = 180,
                  .height = 136});
  // 100 pixels of steps from 58 on, 100 of values up from 110.
  EXPECT_THAT(svg, HasSubstr("d=\"M83.0 110.0h.01M133.0 10.0L158.0 10.0\""));
  EXPECT_THAT(svg, HasSubstr("aria-label=\"a &quot;b&quot;\""));
  EXPECT_THAT(svg, HasSubstr("[&quot;loss&quot;,[1,3,4],[0,1,1]]"));
  EXPECT_THAT(draw_chart({.curves = {{"loss", "blue", {{1, gap}}, false}}}), Not(HasSubstr("svg")));
}

class ReportFile : public ObservedRun {
 protected:
  RunFacts told() const {
    RunFacts these = facts();
    these.model = "gpt2 <script>alert('model')</script>";
    these.hardware = "cpu & more";
    these.data = "\"quoted\".txt";
    these.config = "text = \"</pre><b>\"\n";
    these.parameters = 1'234'567;
    these.step_flops = 1e9;
    these.peak_flops = 8e9;
    these.memory = {{"parameters", 1, 1 << 20}, {"activations <layer>", 3, 1 << 20}};
    these.memory_bytes = 4 << 20;
    return these;
  }
  std::string report(const RunFacts& these, const RunEnd& end, bool validate = true) {
    const auto metrics = make_metrics_file();
    const auto observer = make_report();
    for (RunObserver* one : {metrics.get(), observer.get()}) {
      one->begin(these);
      for (std::int64_t step = these.first_step; step <= 20; ++step) {
        StepRecord taken = record(step);
        if (validate && step % 5 == 0) {
          taken.validation_loss = 3 - 0.1 * static_cast<double>(step);
          taken.validation_seconds = 1;
          taken.checkpoint_seconds = 0.5;
        }
        one->step(taken);
      }
      one->sample(20, "once <i>upon</i> a \x1b time & \xff");
      one->notice("saved <a> checkpoint");
      one->warning("a & b");
      one->end(end);
    }
    return bytes_of(folder_ / "report.html");
  }
};

TEST_F(ReportFile, HasEveryPart) {
  const std::string page = report(told(), {.seconds = 15});
  EXPECT_EQ(occurrences(page, "<svg "), 4U);
  EXPECT_EQ(occurrences(page, "<svg "), occurrences(page, "</svg>"));
  for (const char* part :
       {"<h2>Loss</h2>", "validation", "<h2>Throughput</h2>", "<h2>Gradient norm</h2>",
        "<h2>Learning rate</h2>", "<h2>Time</h2>", "<h2>Memory</h2>", "<h2>Samples</h2>",
        "<summary>Configuration</summary>", "<summary>Messages</summary>", ">finished<",
        "1,234,567 in f32", "20 of 20", "prefers-color-scheme: dark"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  // 20 steps of 512 tokens in 0.25 s at 1 GFLOP each, an eighth of a second for data, and so on.
  for (const char* number : {"2,048 tokens/s", "4 GFLOP/s", "50% of the machine&#39;s 8 GFLOP/s",
                             "best 1.0000 after step 20", "3 &times; 1 MiB", "4,194,304 bytes"}) {
    EXPECT_THAT(page, HasSubstr(number));
  }
  const auto row = [](const std::string& style, const std::string& name, const std::string& time) {
    return "<i class=\"swatch " + style + "\"></i>" + name + "</td><td class=\"number\">" + time;
  };
  EXPECT_THAT(page, HasSubstr(row("blue", "computing", "5.0s")));
  EXPECT_THAT(page, HasSubstr(row("orange", "waiting for data", "2.5s")));
  EXPECT_THAT(page, HasSubstr(row("purple", "checkpoints", "2.0s")));
  EXPECT_THAT(page, HasSubstr(row("teal", "validation", "4.0s")));
  EXPECT_THAT(page, HasSubstr(row("grey", "other", "1.5s")));
}

TEST_F(ReportFile, TellsWhereTheTimeOfSeveralWorkersWent) {
  RunFacts these = told();
  these.workers = 4;
  these.strategy = "ddp";
  const auto metrics = make_metrics_file();
  const auto observer = make_report();
  for (RunObserver* one : {metrics.get(), observer.get()}) {
    one->begin(these);
    for (std::int64_t step = 1; step <= 20; ++step) {
      StepRecord taken = record(step);
      taken.workers = {.compute_seconds = 0.15,
                       .communication_seconds = 0.2,
                       .exposed_seconds = 0.05,
                       .longest_exposed_seconds = 0.3,
                       .bytes_sent = 1 << 20,
                       .slowest_rank = step % 4 == 0 ? 1 : 3,
                       .slowest_seconds = 0.15};
      one->step(taken);
    }
    one->end({.seconds = 15});
  }
  const std::string page = bytes_of(folder_ / "report.html");
  for (const char* part :
       {"<dt>Workers</dt><dd>4, ddp</dd>", "<h2>Workers</h2>", "communication under way",
        "computing</td><td class=\"number\">3.0s",
        "waiting for ranks</td><td class=\"number\">2.0s",
        "communication, mean over ranks</td><td class=\"number\" colspan=\"2\">4.0s",
        "exposed of it</td><td class=\"number\" colspan=\"2\">1.0s",
        "exposed at the rank that waited longest</td><td class=\"number\" colspan=\"2\">6.0s",
        "20 MiB", "rank 3, 75%"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr("One step")));
  EXPECT_THAT(page, Not(HasSubstr("staleness")));
  StepRecord stale = record(21);
  stale.workers = {.compute_seconds = 0.15, .staleness = 10.5, .most_stale = 17};
  these.first_step = 21;
  metrics->begin(these);
  metrics->step(stale);
  observer->begin(these);
  observer->end({.seconds = 15});
  EXPECT_THAT(bytes_of(folder_ / "report.html"), HasSubstr("0.50 updates, 17.0 at most"));
}

TEST_F(ReportFile, NeedsNothingElse) {
  const std::string page = report(told(), {.seconds = 15});
  for (const char* reference : {"http", "src=", "href", "@import", "url(", "<link", "//"}) {
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  }
}

TEST_F(ReportFile, ShowsTextAsText) {
  const std::string page = report(told(), {RunEnd::Reason::kFailed, "<disk> full", 15});
  EXPECT_THAT(page, HasSubstr("<h1>gpt2 &lt;script&gt;alert(&#39;model&#39;)&lt;/script&gt;</h1>"));
  EXPECT_EQ(occurrences(page, "<script"), 1U);
  for (const char* text :
       {"cpu &amp; more", "&quot;quoted&quot;.txt", "text = &quot;&lt;/pre&gt;&lt;b&gt;&quot;",
        "activations &lt;layer&gt;", "saved &lt;a&gt; checkpoint", "warning: a &amp; b",
        "once &lt;i&gt;upon&lt;/i&gt; a \xEF\xBF\xBD time &amp; \xEF\xBF\xBD",
        "<p class=\"failure\">&lt;disk&gt; full</p>", ">failed<"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
}

TEST_F(ReportFile, TellsOfWhatCameBeforeAResume) {
  std::string before;
  for (std::int64_t step = 1; step <= 14; ++step) before += metrics_line(record(step), false);
  write_file(folder_ / "metrics.jsonl", before);
  write_file(folder_ / "samples.jsonl",
             "{\"step\":10,\"text\":\"of the tenth\"}\n{\"step\":12,\"text\":\"done again\"}\n");
  RunFacts these = told();
  these.first_step = 11;
  const std::string page = report(these, {RunEnd::Reason::kInterrupted, "", 10}, false);
  EXPECT_THAT(page, HasSubstr(">interrupted<"));
  EXPECT_THAT(page, HasSubstr("20 of 20, resumed with step 11"));
  EXPECT_THAT(page, HasSubstr("10.2 thousand"));  // tokens of 20 steps
  EXPECT_THAT(page, HasSubstr("of the tenth"));
  EXPECT_THAT(page, Not(HasSubstr("done again")));
  // 20 steps of 0.375 s, and what the last 10 leave of 10 s.
  EXPECT_THAT(page, HasSubstr("all</td><td class=\"number\">14s"));
}

TEST_F(ReportFile, OfNoStepAtAllSaysSo) {
  const auto observer = make_report();
  observer->begin(told());
  observer->end({RunEnd::Reason::kFailed, "no memory", 0});
  const std::string page = bytes_of(folder_ / "report.html");
  EXPECT_EQ(occurrences(page, "Nothing was measured."), 4U);
  EXPECT_THAT(page, HasSubstr("no memory"));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

TEST_F(ReportFile, AFolderThatIsNotThereIsAnErrorAtTheBeginning) {
  RunFacts these = told();
  these.folder = folder_ / "absent";
  EXPECT_THROW(make_report()->begin(these), Error);
}

}  // namespace
}  // namespace lockstep::train
