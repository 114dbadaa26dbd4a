#include "lockstep/parallel/trace/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/native/threads.h"
#include "lockstep/ops/ops.h"
#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/communication/gathered.h"
#include "lockstep/parallel/trace/clock_offset.h"
#include "lockstep/parallel/trace/device_clock.h"

namespace lockstep::parallel::trace_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> names_in(const Trace& trace) {
  std::vector<std::string> names;
  for (const TraceSpan& span : trace.spans()) names.push_back(span.name());
  return names;
}

void work(Trace& trace, std::string_view kind, std::int64_t index = -1) {
  const TraceScope scope(trace, {.lane = TraceLane::kCompute, .kind = kind, .index = index});
}

TEST(Trace, OneThatIsOffKeepsNothing) {
  Trace trace;
  trace.begin_step(1);
  work(trace, "forward");
  EXPECT_FALSE(trace.on());
  EXPECT_THAT(trace.spans(), IsEmpty());
}

// However late the thread of the clock runs: a span of a block ends before the next one begins.
TEST(DeviceClock, KeepsTheMomentsOfACpuExactly) {
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  const DeviceClock clock(*ops);
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t before = trace_now();
    const Moment moment = ops->moment();
    const std::int64_t after = trace_now();
    const std::int64_t when = clock.nanoseconds(moment);
    ASSERT_GE(when, before);
    ASSERT_LE(when, after);
  }
}

TEST(Trace, ASpanTellsWhatWasDoneInWhichStep) {
  Trace trace;
  trace.keep(1);
  trace.begin_step(7);
  const std::int64_t before = trace_now();
  {
    const TraceScope scope(trace, {.lane = TraceLane::kCommunication,
                                   .kind = "reduce",
                                   .of = std::string("buck") + "et",
                                   .index = 3,
                                   .bytes = 17,
                                   .elements = 5});
  }
  const std::int64_t after = trace_now();
  const auto spans = trace.spans();
  ASSERT_THAT(spans, SizeIs(1));
  EXPECT_EQ(spans[0].lane, TraceLane::kCommunication);
  EXPECT_EQ(spans[0].name(), "reduce bucket 3");
  EXPECT_EQ(spans[0].kind, "reduce");
  EXPECT_EQ(spans[0].step, 7);
  EXPECT_EQ(spans[0].bytes, 17U);
  EXPECT_EQ(spans[0].elements, 5U);
  EXPECT_LE(before, spans[0].begin);
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_LE(spans[0].end, after);
}

TEST(Trace, KeepsTheLastSteps) {
  for (const int steps : {1, 3}) {
    Trace trace;
    trace.keep(steps);
    for (std::int64_t step = 1; step <= 17; ++step) {
      trace.begin_step(step);
      work(trace, "forward", step);
      work(trace, "update", step);
    }
    const auto spans = trace.spans();
    ASSERT_THAT(spans, SizeIs(2 * steps));
    EXPECT_EQ(spans.front().step, 17 - steps + 1);
    EXPECT_EQ(spans.back().step, 17);
    EXPECT_EQ(trace.lost(), 0U);
  }
}

TEST(Trace, OfTooManySpansTheOldestGoAndAreCounted) {
  Trace trace;
  trace.keep(2, 3);
  trace.begin_step(1);
  for (int i = 0; i < 5; ++i) work(trace, "forward", i);
  EXPECT_THAT(names_in(trace), ElementsAre("forward 2", "forward 3", "forward 4"));
  EXPECT_EQ(trace.lost(), 2U);
}

TEST(Trace, SpansStandByLaneInTheOrderInWhichTheyBegan) {
  Trace trace;
  trace.keep(1);
  const auto add = [&](TraceLane lane, std::int64_t begin) {
    trace.add({.lane = lane, .kind = std::to_string(begin), .of = {}, .begin = begin, .end = 9});
  };
  add(TraceLane::kWaiting, 1);
  add(TraceLane::kCompute, 5);
  add(TraceLane::kCompute, 3);
  add(TraceLane::kStep, 2);
  EXPECT_THAT(names_in(trace), ElementsAre("2", "3", "5", "1"));
}

TEST(Trace, ThreadsMayAddAtOnce) {
  Trace trace;
  trace.keep(1);
  constexpr int kEach = 1000;
  std::vector<std::thread> threads;
  for (const char* kind : {"a", "b", "c"}) {
    threads.emplace_back([&trace, kind] {
      for (int i = 0; i < kEach; ++i) work(trace, kind);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<std::string, int> counts;
  for (const TraceSpan& span : trace.spans()) ++counts[span.kind];
  EXPECT_THAT(counts,
              ElementsAre(std::pair("a", kEach), std::pair("b", kEach), std::pair("c", kEach)));
}

TEST(CommunicationThread, WaitsForTheFirstOfItsTasks) {
  CommunicationThread thread;
  std::mutex second;
  second.lock();
  bool first_done = false;
  thread.push([&] {
    first_done = true;
    return 0;
  });
  thread.push([&] {
    const std::lock_guard lock(second);
    return 5;
  });
  thread.wait(1);
  EXPECT_TRUE(first_done);
  EXPECT_EQ(thread.under_way(), 1U);
  second.unlock();
  thread.wait();
  EXPECT_EQ(thread.under_way(), 0U);
  EXPECT_EQ(thread.take_cost().bytes, 5U);
}

TEST(ClockOffset, FindsHowFarClocksAreApart) {
  constexpr std::int64_t kApart = 3'600'000'000'000;  // an hour from rank to rank
  run_threads(3, [&](Communicator& world) {
    const std::int64_t ahead = world.rank() * kApart;
    const std::int64_t begin = trace_now();
    const std::int64_t offset = estimated_clock_offset(world, [&] { return trace_now() + ahead; });
    const std::int64_t took = trace_now() - begin;
    // The error is within what a round trip took.
    EXPECT_LE(std::abs(offset + ahead), took);
    EXPECT_EQ(clock_offset(world), 0) << "of one machine is one clock";
  });
}

TEST(Gathered, TextsOfAnyLengthComeToTheRoot) {
  run_threads(3, [&](Communicator& world) {
    const std::string mine(static_cast<std::size_t>(world.rank()) * 17, 'a');
    const auto all = gathered_texts_at(2, world, mine);
    if (world.rank() == 2) {
      EXPECT_THAT(all, ElementsAre("", std::string(17, 'a'), std::string(34, 'a')));
    } else {
      EXPECT_THAT(all, IsEmpty());
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel::trace_test
