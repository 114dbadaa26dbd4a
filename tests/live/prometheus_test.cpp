#include "lockstep/live/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/live/live_run.h"

namespace lockstep::live {
namespace {

// The text read back by its grammar: HELP, TYPE and samples of one metric after the other.
struct Exposition {
  std::map<std::string, std::string> types;
  std::map<std::string, double> samples;  // by name and labels, as written

  explicit Exposition(const std::string& text) {
    EXPECT_TRUE(text.empty() || text.back() == '\n');
    static const std::regex kHelp(R"(# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+))");
    static const std::regex kType(R"(# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge))");
    static const std::regex kSample(
        R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*\}) (\S+))re");
    std::set<std::string> seen;
    std::string current;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (std::regex_match(line, match, kHelp)) {
        EXPECT_TRUE(seen.insert(match[1]).second) << "twice: " << line;
        current = match[1];
      } else if (std::regex_match(line, match, kType)) {
        EXPECT_EQ(match[1], current);
        types[current] = match[2];
      } else if (std::regex_match(line, match, kSample)) {
        EXPECT_EQ(match[1], current) << "samples stand together, after their type";
        EXPECT_TRUE(types.contains(current));
        samples[match[1].str() + match[2].str()] = std::stod(match[3]);
      } else {
        ADD_FAILURE() << "this is no line of the format: " << line;
      }
    }
  }
};

class PrometheusOfRuns : public LiveRun {
 protected:
  Exposition expose(const std::string& id) {
    const auto run = std::make_shared<RunFollower>(id, folder_);
    while (run->poll(1 << 20)) {
    }
    return Exposition(prometheus_text(std::vector{run}));
  }
};

TEST_F(PrometheusOfRuns, HasTheFiguresOfTheMetrics) {
  train::RunFacts these = facts();
  these.workers = 2;
  begin(these);
  for (std::int64_t i = 1; i <= 10; ++i) {
    train::StepRecord one = record(i);
    one.validation_loss = 1 + 1.0 / static_cast<double>(i);
    one.workers = train::WorkerCosts{.compute_seconds = 0.2, .bytes_sent = 100};
    one.metrics.costs = {{.compute_seconds = 0.1}, {.compute_seconds = 0.2}};
    step(one);
  }
  end({.seconds = 5});
  const Exposition all = expose("first");
  EXPECT_EQ(all.samples.at("lockstep_loss{run=\"first\"}"), 0.4);
  EXPECT_EQ(all.samples.at("lockstep_steps_total{run=\"first\"}"), 10);
  EXPECT_EQ(all.samples.at("lockstep_tokens_total{run=\"first\"}"), 5120);
  EXPECT_EQ(all.samples.at("lockstep_validation_loss{run=\"first\"}"), 1.1);
  EXPECT_EQ(all.samples.at("lockstep_learning_rate{run=\"first\"}"), 1e-3);
  EXPECT_EQ(all.samples.at("lockstep_step_seconds{run=\"first\"}"), 0.25);
  EXPECT_EQ(all.samples.at("lockstep_running{run=\"first\"}"), 0);
  EXPECT_EQ(all.samples.at("lockstep_memory_peak_bytes{run=\"first\"}"), 1 << 20);
  EXPECT_EQ(all.samples.at("lockstep_sent_bytes_total{run=\"first\"}"), 1000);
  EXPECT_NEAR(all.samples.at("lockstep_rank_compute_seconds{run=\"first\",rank=\"1\"}"), 0.2, 1e-9);
  for (const auto& [name, type] : all.types) {
    EXPECT_EQ(name.ends_with("_total"), type == "counter") << name;
    EXPECT_TRUE(name.starts_with("lockstep_")) << name;
  }
}

TEST_F(PrometheusOfRuns, NamesCannotLeaveTheirLabel) {
  begin(facts());
  steps(1, 1);
  const Exposition all = expose("a\"} 1\nb\\");
  EXPECT_TRUE(all.samples.contains("lockstep_loss{run=\"a\\\"} 1\\nb\\\\\"}"));
}

TEST_F(PrometheusOfRuns, WhatIsNotKnownIsLeftOut) {
  const Exposition none = expose("empty");
  EXPECT_FALSE(none.types.contains("lockstep_loss"));
  EXPECT_EQ(none.samples.at("lockstep_running{run=\"empty\"}"), 0);
  begin(facts());
  train::StepRecord bad = record(1);
  bad.metrics.loss = std::nan("");
  step(bad);
  EXPECT_FALSE(expose("nan").types.contains("lockstep_loss"));
}

}  // namespace
}  // namespace lockstep::live
