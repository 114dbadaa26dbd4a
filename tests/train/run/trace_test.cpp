#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/live/report_file.h"
#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/observe/pipeline_bubble.h"
#include "lockstep/train/observe/report/timeline.h"
#include "lockstep/train/observe/run_record.h"
#include "lockstep/train/observe/trace_file.h"
#include "lockstep/train/run/run.h"

namespace lockstep::train::trace_test {
namespace {

using parallel::TraceLane;
using parallel::TraceSpan;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TraceSpan span(TraceLane lane, const char* kind, const char* of, std::int64_t begin,
               std::int64_t end, std::int64_t step = 1) {
  return {.lane = lane, .kind = kind, .of = of, .begin = begin, .end = end, .step = step};
}

// A step of 1 ms: a block forward and backward, its bucket, and the wait for it.
RankTrace rank_of_one_step(int rank, std::int64_t step = 1) {
  constexpr std::int64_t kUs = 1000;
  const std::int64_t at = (step - 1) * 1000 * kUs;
  TraceSpan bucket =
      span(TraceLane::kCommunication, "reduce", "bucket 0", at + 500 * kUs, at + 900 * kUs, step);
  bucket.bytes = 4096;
  bucket.elements = 1024;
  return {
      rank,
      {span(TraceLane::kStep, "step", "1", at, at + 1000 * kUs, step),
       span(TraceLane::kCompute, "forward", "layer <0>", at, at + 200 * kUs, step),
       span(TraceLane::kCompute, "backward", "layer <0>", at + 200 * kUs, at + 800 * kUs, step),
       span(TraceLane::kCompute, "update", "", at + 900 * kUs, at + 1000 * kUs, step), bucket,
       span(TraceLane::kWaiting, "wait for", "bucket 0", at + 800 * kUs, at + 900 * kUs, step)}};
}

TEST(TraceFile, ReadsBackAsItWasWritten) {
  const ScratchFolder folder;
  const auto path = trace_path(folder.path());
  std::vector<std::string> events;
  const RankTrace first = rank_of_one_step(0);
  const std::vector<TraceSpan> second = {span(
      TraceLane::kCompute, "forward", "a \"quoted\" \\ name", 1'234'567'891, 1'234'567'892, 3)};
  events.push_back(trace_events(0, first.spans, 0));
  events.push_back(trace_events(1, second, -1'000'000'000));
  events.push_back(trace_events(2, {}, 5));
  write_trace(path, events);
  const auto back = read_trace(path);
  ASSERT_THAT(back, SizeIs(3));
  ASSERT_THAT(back[0].spans, SizeIs(first.spans.size()));
  for (std::size_t i = 0; i < first.spans.size(); ++i) {
    const TraceSpan& was = first.spans[i];
    const TraceSpan& is = back[0].spans[i];
    EXPECT_EQ(is.lane, was.lane);
    EXPECT_EQ(is.kind, was.kind);
    EXPECT_EQ(is.of, was.of);
    EXPECT_EQ(is.begin, was.begin);
    EXPECT_EQ(is.end, was.end);
    EXPECT_EQ(is.step, was.step);
    EXPECT_EQ(is.bytes, was.bytes);
    EXPECT_EQ(is.elements, was.elements);
  }
  EXPECT_EQ(back[1].rank, 1);
  ASSERT_THAT(back[1].spans, SizeIs(1));
  EXPECT_EQ(back[1].spans[0].name(), "forward a \"quoted\" \\ name");
  EXPECT_EQ(back[1].spans[0].begin, 234'567'891);
  EXPECT_THAT(back[2].spans, IsEmpty());
}

TEST(TraceFile, HasTheFieldsThatViewersRead) {
  const std::string events = trace_events(3, rank_of_one_step(3).spans, 1'500);
  for (const char* event :
       {R"({"ph":"M","name":"process_name","pid":3,"args":{"name":"rank 3"}})",
        R"({"ph":"M","name":"thread_name","pid":3,"tid":2,"args":{"name":"communication"}})",
        R"({"ph":"X","name":"reduce bucket 0","cat":"reduce","pid":3,"tid":2,"ts":501.500,)"
        R"("dur":400.000,"args":{"step":1,"bytes":4096,"elements":1024}})"}) {
    EXPECT_THAT(events, HasSubstr(event));
  }
}

TEST(TraceFile, AnotherFileIsRefused) {
  const ScratchFolder folder;
  const auto path = trace_path(folder.path());
  for (
      const char* text :
      {"", "{", "[]", "{\"traceEvents\":[{}]}",
       R"({"traceEvents":[{"ph":"X","pid":0,"tid":9,"cat":"a","name":"a","ts":0,"dur":0,"args":{}}]})",
       R"({"traceEvents":[{"ph":"X","pid":"a"}]})"}) {
    write_file(path, text);
    EXPECT_THROW(read_trace(path), Error) << text;
  }
}

TEST(Timeline, DrawsTheMiddleStepThatAllRanksHave) {
  std::vector<RankTrace> ranks(2);
  for (std::int64_t step = 1; step <= 5; ++step) {
    for (int rank : {0, 1}) {
      if (rank == 1 && step < 3) continue;  // it has lost the first ones
      auto& all = ranks[static_cast<std::size_t>(rank)];
      all.rank = rank;
      const auto more = rank_of_one_step(rank, step).spans;
      all.spans.insert(all.spans.end(), more.begin(), more.end());
    }
  }
  const auto timeline = draw_timeline(ranks);
  ASSERT_TRUE(timeline);
  EXPECT_EQ(timeline->step, 4);
  EXPECT_DOUBLE_EQ(timeline->seconds, 1e-3);
  EXPECT_NEAR(timeline->communication, 2 * 400e-6, 1e-9);
  EXPECT_NEAR(timeline->exposed, 2 * 100e-6, 1e-9);
  ranks[0].spans.push_back(span(TraceLane::kWaiting, "agree", "to end", 3'950'000, 4'000'000, 4));
  const auto agreeing = draw_timeline(ranks);
  EXPECT_NEAR(agreeing->communication, 2 * 400e-6 + 50e-6, 1e-9);
  EXPECT_NEAR(agreeing->exposed, 2 * 100e-6 + 50e-6, 1e-9);
  const std::string& svg = timeline->svg;
  for (const char* part :
       {">rank 0<", ">rank 1<", ">compute<", ">communication<", ">waiting<",
        "<title>backward layer &lt;0&gt;\n600 us from 200 us</title>", "4 KiB sent",
        "<rect class=\"bar orange\"", "<rect class=\"bar rose\""}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  std::vector<std::string_view> legend;
  for (const TimelineColour& colour : timeline->colours) legend.push_back(colour.name);
  EXPECT_THAT(legend, ElementsAre("forward", "backward", "update", "communication", "waiting"));
}

// Stage 0 computes in [0, 10) and [30, 50), stage 1 in [10, 30): busy 30 and 20 of 50.
TEST(PipelineBubbles, AreTheWaitingOfTheBusiestStage) {
  std::vector<RankTrace> ranks(2);
  ranks[0] = {0,
              {span(TraceLane::kCompute, "forward", "layer.0", 0, 10),
               span(TraceLane::kCompute, "backward", "layer.0", 30, 50),
               span(TraceLane::kCompute, "update", "", 50, 90),
               span(TraceLane::kWaiting, "wait for", "gradient 0", 10, 30)}};
  ranks[1] = {1,
              {span(TraceLane::kCompute, "forward", "layer.1", 10, 15),
               span(TraceLane::kCompute, "backward", "layer.1", 15, 25),
               span(TraceLane::kCompute, "weights", "layer.1", 25, 30),
               span(TraceLane::kCompute, "forward", "layer.1", 60, 70, 2)}};
  const auto bubbles = pipeline_bubbles(ranks);
  ASSERT_THAT(bubbles, SizeIs(1)) << "rank 0 has no step 2";
  EXPECT_DOUBLE_EQ(bubbles.at(1), (50.0 - 30.0) / 30.0);
  ranks[0].spans.pop_back();
  EXPECT_THAT(pipeline_bubbles(ranks), IsEmpty()) << "nobody waits for a stage";
}

TEST(Timeline, OfNothingIsNone) {
  EXPECT_FALSE(draw_timeline({}));
  EXPECT_FALSE(draw_timeline(std::vector<RankTrace>(2)));
}

// As with workers that do not wait for each other.
TEST(Timeline, OfRanksThatAreNotInOneStepTogetherIsOfTheTimeOfAStepOfTheFirst) {
  std::vector<RankTrace> apart = {rank_of_one_step(0), rank_of_one_step(1)};
  for (TraceSpan& one : apart[1].spans) one.step = 2;
  const auto of_others = draw_timeline(apart);
  ASSERT_TRUE(of_others);
  EXPECT_EQ(of_others->step, 1);
  EXPECT_DOUBLE_EQ(of_others->seconds, 1e-3);
  EXPECT_NEAR(of_others->communication, 2 * 400e-6, 1e-9);
  // The same step, but later: of what else the second does, that is drawn which is in the first's.
  apart = {rank_of_one_step(0), rank_of_one_step(1)};
  for (TraceSpan& one : apart[1].spans) {
    one.begin += 1'500'000;
    one.end += 1'500'000;
  }
  apart[1].spans.push_back(span(TraceLane::kCompute, "update", "", 900'000, 1'400'000));
  const auto later = draw_timeline(apart);
  ASSERT_TRUE(later);
  EXPECT_DOUBLE_EQ(later->seconds, 1e-3);
  EXPECT_NEAR(later->communication, 400e-6, 1e-9);
  EXPECT_THAT(later->svg, HasSubstr("<title>update\n100 us from 900 us</title>"));
}

TEST(Timeline, ThinBarsBecomeOne) {
  RankTrace rank = rank_of_one_step(0);
  const std::size_t before = draw_timeline(std::vector{rank})->svg.size();
  for (std::int64_t i = 0; i < 1000; ++i) {
    rank.spans.push_back(span(TraceLane::kCompute, "backward", "many", 800'000 + i, 800'000 + i));
  }
  EXPECT_LT(draw_timeline(std::vector{rank})->svg.size(), before + 1000);
}

class TracedRun : public ::testing::Test {
 protected:
  TracedRun() {
    std::ofstream text(folder.path() / "text.txt");
    for (int i = 0; i < 200; ++i) text << "the quick brown fox jumps over " << i << " lazy dogs\n";
  }

  // All ranks threads of this process.
  void run(int ranks, const std::vector<std::string>& more,
           const std::function<std::unique_ptr<RunObserver>()>& also = {}) const {
    const StopSignal stop;
    run_threads(ranks, [&](Communicator& world) {
      RunSettings given;
      for (const std::string& one :
           {"data.text=" + (folder.path() / "text.txt").string(),
            "run.dir=" + (folder.path() / "run").string(), std::string("data.tokenizer=character"),
            std::string("model.layers=2"), std::string("model.hidden=16"),
            std::string("model.heads=2"), std::string("train.seq_len=8"),
            std::string("train.global_batch_size=6"), std::string("train.micro_batch_size=1"),
            std::string("train.precision=f32"), std::string("train.threads=1"),
            std::string("train.steps=7"), std::string("train.validate_batches=2"),
            std::string("parallel.bucket_mb=0.01"), std::string("parallel.first_bucket_mb=0.01")}) {
        given.config.set(one);
      }
      for (const std::string& one : more) given.config.set(one);
      std::vector<std::unique_ptr<RunObserver>> observers;
      if (world.rank() == 0) observers.push_back(make_metrics_file());
      if (world.rank() == 0) observers.push_back(make_run_record());
      if (world.rank() == 0) observers.push_back(live::make_report());
      if (world.rank() == 0 && also) observers.push_back(also());
      run_training(given, observers, stop, {.world = &world, .host = {}});
    });
  }

  std::filesystem::path dir() const { return folder.path() / "run"; }

  ScratchFolder folder;
};

void expect_no_overlap(const RankTrace& rank) {
  std::map<TraceLane, std::int64_t> ends;
  for (const TraceSpan& one : rank.spans) {
    EXPECT_LE(one.begin, one.end) << one.name();
    const auto last = ends.find(one.lane);
    if (last != ends.end()) {
      EXPECT_GE(one.begin, last->second) << rank.rank << ' ' << one.name();
    }
    ends[one.lane] = one.end;
  }
}

// Every span of a step lies in it, except for the data, which comes before, and what is done
// between steps.
void expect_within_steps(const RankTrace& rank) {
  std::map<std::int64_t, const TraceSpan*> steps;
  for (const TraceSpan& one : rank.spans) {
    if (one.lane == TraceLane::kStep) steps[one.step] = &one;
  }
  EXPECT_THAT(steps, SizeIs(3)) << "trace_steps";
  for (const TraceSpan& one : rank.spans) {
    if (one.kind == "data" || one.kind == "validation" || one.kind == "checkpoint" ||
        one.kind == "compare parameters") {
      continue;
    }
    ASSERT_TRUE(steps.contains(one.step)) << one.name();
    EXPECT_GE(one.begin, steps[one.step]->begin) << one.name();
    EXPECT_LE(one.end, steps[one.step]->end) << one.name();
  }
}

TEST_F(TracedRun, EveryRankTellsOfEveryBlockAndBucketOfTheLastSteps) {
  for (const char* reduction : {"fast", "tree"}) {
    const bool tree = std::string_view(reduction) == "tree";
    std::vector<std::string> more = {"train.trace=true", "train.trace_steps=3",
                                     std::string("parallel.reduction=") + reduction};
    if (tree)
      more.insert(more.end(), {"train.global_batch_size=4", "run.dir=" + dir().string() + "2"});
    run(2, more);
    const auto ranks = read_trace(trace_path(dir().string() + (tree ? "2" : "")));
    ASSERT_THAT(ranks, SizeIs(2));
    const int micro_batches = tree ? 2 : 3;
    for (const RankTrace& rank : ranks) {
      expect_no_overlap(rank);
      expect_within_steps(rank);
      std::map<std::string, int> names;
      for (const TraceSpan& one : rank.spans) ++names[one.name()];
      for (const char* block : {"layer.0", "layer.1"}) {
        EXPECT_EQ(names[std::string("forward ") + block], 3 * micro_batches);
        EXPECT_EQ(names[std::string("backward ") + block], 3 * micro_batches);
      }
      EXPECT_EQ(names["update"], 3);
      EXPECT_EQ(names["agree to begin"], 3);
      EXPECT_EQ(names["agree to end"], 3);
      EXPECT_EQ(names["reduce bucket 0"], 3);
      EXPECT_EQ(names["reduce bucket 1"], 3) << "there are several";
      EXPECT_EQ(names["add up bucket 1"], tree ? 3 : 0);
      EXPECT_EQ(names["validation"], 1);
    }
  }
}

TEST_F(TracedRun, BytesOfItsBucketsAreThoseOfItsMetrics) {
  run(3, {"train.trace=true", "train.trace_steps=1"});
  std::uint64_t traced = 0;
  for (const RankTrace& rank : read_trace(trace_path(dir()))) {
    for (const TraceSpan& one : rank.spans) traced += one.bytes;
  }
  std::vector<StepRecord> steps;
  read_metrics(dir(), [&](const StepRecord& record) { steps.push_back(record); });
  ASSERT_THAT(steps, SizeIs(7));
  ASSERT_TRUE(steps.back().workers);
  EXPECT_GT(traced, 0U);
  EXPECT_EQ(steps.back().workers->bytes_sent, traced);
  for (const StepRecord& step : steps) {
    EXPECT_GT(step.workers->compute_seconds, 0);
    EXPECT_GE(step.workers->slowest_seconds, step.workers->compute_seconds);
    EXPECT_LT(step.workers->exposed_seconds, step.metrics.seconds);
  }
}

TEST_F(TracedRun, ReportDrawsAStepOnlyWhereItWasTraced) {
  run(2, {});
  EXPECT_FALSE(std::filesystem::exists(trace_path(dir())));
  const std::string without = read_file(dir() / "report.html");
  constexpr const char* kTimeline = "\"type\":\"timeline\"";
  EXPECT_THAT(without, AllOf(HasSubstr("\"exposed_ms\":"), Not(HasSubstr(kTimeline))));
  run(2, {"train.steps=9", "train.trace=true"});  // resumes
  const std::string with = read_file(dir() / "report.html");
  EXPECT_THAT(with, AllOf(HasSubstr(kTimeline), HasSubstr(">rank 1\\u003c/text>")));
}

// Ranks that come to their ends at their own times.
TEST_F(TracedRun, IsOfAllRanksWhereTheyDoNotWaitForEachOtherToo) {
  for (const std::string consistency : {"asp", "ssp"}) {
    SCOPED_TRACE(consistency);
    const std::filesystem::path to = folder.path() / consistency;
    run(3, {"train.trace=true", "train.trace_steps=100", "train.steps=12",
            "parallel.strategy=parameter_server", "parallel.consistency=" + consistency,
            "debug.slow_rank=1", "debug.slow_factor=3", "run.dir=" + to.string()});
    const auto ranks = read_trace(trace_path(to));
    ASSERT_THAT(ranks, SizeIs(3));
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    std::size_t shares = 0;
    for (const RankTrace& rank : ranks) {
      expect_no_overlap(rank);
      for (const TraceSpan& one : rank.spans) {
        first = std::min(first, one.begin);
        shares += one.lane == TraceLane::kStep ? 1 : 0;
      }
    }
    EXPECT_EQ(first, 0) << "on one clock, from the first of all spans on";
    EXPECT_EQ(shares, 3u * 12);
    std::set<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(to)) {
      const std::string name = file.path().filename();
      if (name.starts_with("trace")) names.insert(name);
    }
    EXPECT_THAT(names, ElementsAre("trace.json"));
    EXPECT_THAT(read_file(to / "report.html"),
                AllOf(HasSubstr("\"type\":\"timeline\""), HasSubstr(">rank 2\\u003c/text>")));
  }
}

// After which steps the trace is written anew.
class TraceWatcher : public RunObserver {
 public:
  TraceWatcher(std::filesystem::path trace, std::vector<std::int64_t>& steps)
      : trace_(std::move(trace)), steps_(steps) {}
  void begin(const RunFacts&) override {}
  void step(const StepRecord& record) override {
    if (!std::filesystem::exists(trace_)) return;
    steps_.push_back(record.metrics.step - 1);
    std::filesystem::remove(trace_);
  }
  void sample(std::int64_t, const std::string&) override {}
  void notice(const std::string&) override {}
  void warning(const std::string&) override {}
  void end(const RunEnd&) override {}

 private:
  std::filesystem::path trace_;
  std::vector<std::int64_t>& steps_;
};

TEST_F(TracedRun, IsThereWhileItTrains) {
  for (const int ranks : {1, 2}) {
    std::vector<std::int64_t> steps;
    const std::string to = dir().string() + std::to_string(ranks);
    run(ranks, {"train.trace=true", "train.trace_steps=2", "train.steps=9", "run.dir=" + to},
        [&] { return std::make_unique<TraceWatcher>(trace_path(to), steps); });
    EXPECT_THAT(steps, ElementsAre(2, 4, 8));
    EXPECT_TRUE(std::filesystem::exists(trace_path(to))) << "and at the end";
  }
}

TEST_F(TracedRun, OneRankHasATraceToo) {
  run(1, {"train.trace=true", "train.trace_steps=3"});
  const auto ranks = read_trace(trace_path(dir()));
  ASSERT_THAT(ranks, SizeIs(1));
  expect_no_overlap(ranks[0]);
  expect_within_steps(ranks[0]);
  for (const TraceSpan& one : ranks[0].spans) EXPECT_NE(one.lane, TraceLane::kCommunication);
}

}  // namespace
}  // namespace lockstep::train::trace_test
