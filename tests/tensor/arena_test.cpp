// Layouts by lifetime, the arenas that have them, and streams.
#include "lockstep/tensor/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/tensor/stream.h"
#include "tests/tensor/refusal.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal_of;

Request request(std::size_t bytes, int first_step, int last_step, std::string group = "any") {
  const std::string name = "r" + std::to_string(first_step) + "_" + std::to_string(last_step);
  return {name, std::move(group), bytes, first_step, last_step};
}

// The slow twin of everything plan_layout() promises.
void expect_sound(const std::vector<Request>& requests, const Layout& layout) {
  ASSERT_EQ(layout.offsets.size(), requests.size());
  std::size_t end = 0;
  std::size_t most = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& a = requests[i];
    const std::size_t a_begin = layout.offsets[i];
    EXPECT_EQ(a_begin % 64, 0u);
    if (a.bytes > 0) end = std::max(end, a_begin + (a.bytes + 63) / 64 * 64);
    std::size_t live = 0;
    for (std::size_t j = 0; j < requests.size(); ++j) {
      const Request& b = requests[j];
      if (b.first_step <= a.first_step && a.first_step <= b.last_step) {
        live += (b.bytes + 63) / 64 * 64;
      }
      const bool meet = a.first_step <= b.last_step && b.first_step <= a.last_step;
      if (j <= i || !meet || a.bytes == 0 || b.bytes == 0) continue;
      const std::size_t b_begin = layout.offsets[j];
      EXPECT_TRUE(a_begin + a.bytes <= b_begin || b_begin + b.bytes <= a_begin)
          << a.name << " and " << b.name << " share bytes";
    }
    most = std::max(most, live);
  }
  EXPECT_EQ(layout.bytes, end);
  EXPECT_EQ(layout.lower_bound, most);
  EXPECT_GE(layout.bytes, layout.lower_bound);
}

TEST(Layout, LetsRequestsShareBytesWhoseLifetimesDoNotMeet) {
  const std::vector<Request> requests = {request(100, 0, 1), request(128, 2, 3), request(64, 4, 4)};
  const Layout layout = plan_layout(requests);
  EXPECT_THAT(layout.offsets, Each(0u));
  EXPECT_EQ(layout.bytes, 128u);
  EXPECT_EQ(layout.lower_bound, 128u);
}

TEST(Layout, KeepsRequestsApartThatMeetInOneStep) {
  const std::vector<Request> requests = {request(100, 0, 2), request(128, 2, 3)};
  const Layout layout = plan_layout(requests);
  expect_sound(requests, layout);
  EXPECT_EQ(layout.bytes, 256u);
  EXPECT_EQ(layout.peak_step, 2);
}

TEST(Layout, OfNothingIsEmpty) {
  EXPECT_EQ(plan_layout({}).bytes, 0u);
  const std::vector<Request> empty = {request(0, 0, 5), request(0, 2, 2)};
  EXPECT_EQ(plan_layout(empty).bytes, 0u);
  EXPECT_THAT(plan_layout(empty).offsets, ElementsAre(0u, 0u));
}

// Sibling lifetimes inside [first, last], and others inside those.
void add_nested(std::vector<Request>& requests, std::mt19937_64& random, int first, int last) {
  while (first <= last && requests.size() < 300) {
    const int end = first + static_cast<int>(random() % static_cast<unsigned>(last - first + 1));
    requests.push_back(request(random() % 5000, first, end));
    if (random() % 4 != 0) add_nested(requests, random, first + (random() % 2 ? 1 : 0), end);
    first = end + 1;
  }
}

TEST(Layout, OfNestedLifetimesHasNoGaps) {
  std::vector<Request> layers;  // saved by the forward pass until its backward, with workspace
  for (int layer = 0; layer < 24; ++layer) {
    layers.push_back(request(1000 + 64 * static_cast<std::size_t>(layer % 3), layer, 47 - layer));
    layers.push_back(request(5000, layer, layer));
    layers.push_back(request(7000, 47 - layer, 47 - layer));
  }
  EXPECT_EQ(plan_layout(layers).bytes, plan_layout(layers).lower_bound);
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Request> requests;
    add_nested(requests, random, 0, 40);
    std::shuffle(requests.begin(), requests.end(), random);
    const Layout layout = plan_layout(requests);
    expect_sound(requests, layout);
    EXPECT_EQ(layout.bytes, layout.lower_bound) << "seed " << seed;
  }
}

TEST(Layout, OfRandomLifetimesIsSoundAndTight) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const int count = 1 + static_cast<int>(random() % 120);
    const unsigned steps = 1 + static_cast<unsigned>(random() % 60);
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i) {
      const int first = static_cast<int>(random() % steps);
      const int last = first + static_cast<int>(random() % (steps / (1 + seed % 4) + 1));
      const std::size_t bytes = seed % 3 == 0 ? std::size_t{1} << (random() % 24)
                                              : static_cast<std::size_t>(random() % 100'000);
      requests.push_back(request(bytes, first, last));
    }
    const Layout layout = plan_layout(requests);
    expect_sound(requests, layout);
    EXPECT_LE(static_cast<double>(layout.bytes), 1.25 * static_cast<double>(layout.lower_bound))
        << "seed " << seed;
    EXPECT_EQ(plan_layout(requests).offsets, layout.offsets);
    if (HasFailure()) return;
  }
}

// What a model of that many layers asks for, about: activations that are saved until backward,
// workspace, and gradients that go from layer to layer.
std::vector<Request> requests_of_layers(int layers) {
  std::vector<Request> requests;
  for (int layer = 0; layer < layers; ++layer) {
    const int backward = 2 * layers - 1 - layer;
    for (std::size_t part = 1; part <= 8; ++part) {
      requests.push_back(
          request(1000 * part + 64 * static_cast<std::size_t>(layer % 3), layer, backward));
    }
    requests.push_back(request(5000, layer, layer + 1));
    requests.push_back(request(3000, backward, backward));
    requests.push_back(request(7000, backward, backward + 1));
  }
  return requests;
}

TEST(Layout, OfManyRequestsIsSoundAndTight) {
  const std::vector<Request> requests = requests_of_layers(600);
  const Layout layout = plan_layout(requests);
  expect_sound(requests, layout);
  EXPECT_LE(static_cast<double>(layout.bytes), 1.03 * static_cast<double>(layout.lower_bound));
}

// Time in proportion to the square of their number would be hours, and ctest would end the test.
TEST(Layout, TakesAMillionRequests) {
  const std::vector<Request> requests = requests_of_layers(100'000);
  const Layout layout = plan_layout(requests);
  EXPECT_EQ(layout.offsets.size(), requests.size());
  EXPECT_LE(static_cast<double>(layout.bytes), 1.03 * static_cast<double>(layout.lower_bound));
}

TEST(Layout, TakesLifetimesAtTheEndsOfTheRange) {
  constexpr int kLast = std::numeric_limits<int>::max();
  constexpr int kFirst = std::numeric_limits<int>::min();
  const std::vector<Request> requests = {request(64, kFirst, kLast), request(64, kLast, kLast),
                                         request(128, kFirst, kFirst)};
  const Layout layout = plan_layout(requests);
  expect_sound(requests, layout);
  EXPECT_EQ(layout.bytes, 192u);
  EXPECT_EQ(layout.peak_step, kFirst);
}

TEST(Layout, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal_of([] { plan_layout(std::vector{request(1, 3, 2)}); }),
              HasSubstr("'r3_2' is requested from step 3 to step 2, which is earlier"));
  const std::vector<Request> huge = {request(std::size_t{1} << 62, 0, 0),
                                     request(std::size_t{1} << 62, 1, 1)};
  EXPECT_THAT(refusal_of([&] { plan_layout(huge); }), HasSubstr("exceed any memory"));
  EXPECT_THAT(refusal_of([] { plan_layout(std::vector{request(~std::size_t{0}, 0, 0)}); }),
              HasSubstr("exceed any memory"));
}

TEST(Layout, TellsWhatEachGroupHoldsAtAStep) {
  const std::vector<Request> requests = {
      request(1000, 0, 9, "parameters"), request(64, 0, 2, "activations"),
      request(100, 2, 5, "activations"), request(640, 7, 7, "communication")};
  const Layout layout = plan_layout(requests);
  EXPECT_EQ(layout.peak_step, 7);
  const auto at = [&](int step) {
    std::string text;
    for (const auto& [group, bytes] : bytes_by_group(requests, step)) {
      text += fmt::format("{} {}, ", group, bytes);
    }
    return text;
  };
  EXPECT_EQ(at(layout.peak_step), "parameters 1024, activations 0, communication 640, ");
  EXPECT_EQ(at(2), "parameters 1024, activations 192, communication 0, ");
  EXPECT_EQ(layout.lower_bound, 1664u);
}

TEST(Arena, TakesExactlyTheBytesOfItsLayout) {
  const std::size_t before = memory_in_use(Device{});
  {
    Arena arena({request(1000, 0, 1), request(10, 1, 2), request(500, 2, 2), request(0, 0, 2)});
    EXPECT_EQ(arena.bytes(), arena.layout().bytes);
    EXPECT_EQ(arena.bytes(), 1024u + 64u);
    EXPECT_EQ(memory_in_use(Device{}), before + arena.bytes());
    const Arena moved = std::move(arena);
    EXPECT_EQ(memory_in_use(Device{}), before + moved.bytes());
    EXPECT_EQ(moved.whole(3).bytes(), 0u);
  }
  EXPECT_EQ(memory_in_use(Device{}), before);
}

TEST(Arena, GivesEachRequestItsOwnBytes) {
  const Arena arena({request(40, 0, 1), request(8, 0, 1), request(100, 1, 1)});
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::uint8_t& byte : arena.whole(i).as<std::uint8_t>()) {
      byte = static_cast<std::uint8_t>(i);
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(arena.whole(i).elements(), arena.requests()[i].bytes);
    EXPECT_THAT(arena.whole(i).as<std::uint8_t>(), Each(i));
  }
  EXPECT_EQ(arena.tensor(0, DType::kF32, {5, 2}).data(), arena.whole(0).data());
  EXPECT_EQ(arena.tensor(0, DType::kF64, {}).bytes(), 8u);
}

TEST(Arena, RefusesMoreThanWasRequested) {
  const Arena arena({request(40, 0, 1), request(40, 0, 1)});
  EXPECT_THAT(refusal_of([&] { arena.tensor(0, DType::kF32, {11}); }),
              HasSubstr("'r0_1' was planned with 40 bytes, but as f32 of shape [11] it needs 44"));
  EXPECT_THAT(refusal_of([&] { arena.tensor(2, DType::kF32, {1}); }),
              HasSubstr("request 2 does not exist; the arena has 2"));
  EXPECT_THAT(refusal_of([&] { arena.whole(9); }), HasSubstr("request 9"));
}

TEST(Arena, RefusesALayoutOfOthers) {
  const std::vector<Request> requests = {request(128, 0, 1), request(40, 0, 1)};
  Layout layout = plan_layout(requests);
  EXPECT_EQ(Arena(requests, layout).bytes(), 192u);
  EXPECT_THAT(refusal_of([&] { Arena({request(40, 0, 1)}, layout); }),
              HasSubstr("places 2 requests, but there are 1"));
  layout.bytes = 100;
  EXPECT_THAT(refusal_of([&] { Arena(requests, layout); }), HasSubstr("plan it for these"));
}

TEST(Stream, RunsItsTasksInOrder) {
  std::vector<int> seen;
  Stream stream;
  for (int i = 0; i < 1000; ++i) stream.run([&seen, i] { seen.push_back(i); });
  stream.synchronize();
  ASSERT_EQ(seen.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  stream.synchronize();
}

TEST(Stream, FinishesWhatIsQueuedWhenItEnds) {
  int done = 0;
  {
    Stream stream;
    Stream moved = std::move(stream);
    for (int i = 0; i < 100; ++i) moved.run([&done] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

// A number goes back and forth between two streams; without the events it would be a race.
TEST(Stream, WaitsForTheEventsOfAnother) {
  for (int repetition = 0; repetition < 50; ++repetition) {
    std::vector<int> seen;
    Stream even;
    Stream odd;
    for (int i = 0; i < 50; ++i) {
      even.run([&seen, i] { seen.push_back(2 * i); });
      odd.wait(even.record());
      odd.run([&seen, i] { seen.push_back(2 * i + 1); });
      even.wait(odd.record());
    }
    even.synchronize();
    ASSERT_EQ(seen.size(), 100u);
    ASSERT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  }
}

TEST(Stream, ManyStreamsMeetInOne) {
  for (int repetition = 0; repetition < 100; ++repetition) {
    std::vector<int> parts(6);
    int sum = 0;
    Stream start;
    Stream end;
    std::vector<Stream> streams(parts.size());
    start.run([&parts] { std::fill(parts.begin(), parts.end(), 1); });
    const Event started = start.record();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      streams[i].wait(started);
      streams[i].run([&part = parts[i], i] { part += static_cast<int>(i); });
      end.wait(streams[i].record());
    }
    end.run([&] { sum = std::accumulate(parts.begin(), parts.end(), 0); });
    end.record().wait();
    ASSERT_EQ(sum, 6 + 15);
  }
}

TEST(Stream, AnEventIsDoneWhenWhatCameBeforeIs) {
  Stream gate;
  Stream stream;
  std::atomic<bool> open = false;
  gate.run([&open] { open.wait(false); });
  stream.wait(gate.record());
  const Event event = stream.record();
  EXPECT_FALSE(event.done());
  EXPECT_TRUE(Event().done());
  Event().wait();
  open = true;
  open.notify_all();
  event.wait();
  EXPECT_TRUE(event.done());
}

TEST(Stream, RethrowsTheFirstErrorAndSkipsWhatWasBehindIt) {
  Stream stream;
  bool reached = false;
  stream.run([] { throw std::out_of_range("the first"); });
  stream.run([&reached] { reached = true; });
  stream.run([] { throw std::runtime_error("the second"); });
  try {
    stream.synchronize();
    FAIL() << "nothing was thrown";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "the first");
  }
  EXPECT_FALSE(reached);
  stream.run([&reached] { reached = true; });
  stream.synchronize();
  EXPECT_TRUE(reached);
}

TEST(Stream, HandsAnErrorToThoseThatWaitForIt) {
  for (const bool late : {false, true}) {
    Stream first;
    Stream second;
    bool before = false;
    bool reached = false;
    first.run([] { throw std::runtime_error("lost"); });
    const Event event = first.record();
    if (late) {
      EXPECT_THROW(event.wait(), std::runtime_error);
    }
    second.run([&before] { before = true; });
    second.wait(event);
    second.run([&reached] { reached = true; });
    EXPECT_THROW(second.synchronize(), std::runtime_error);
    EXPECT_THROW(first.synchronize(), std::runtime_error);
    EXPECT_TRUE(before);
    EXPECT_FALSE(reached);
  }
}

TEST(Stream, AnErrorNobodyAskedForEndsWithIt) {
  Stream stream;
  stream.run([] { throw std::runtime_error("unheard"); });
}

TEST(Stream, FreesWhatATaskHeldBeforeTheNextBegins) {
  Stream stream;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  bool gone = false;
  stream.run([held = std::move(held)] {});
  stream.run([&] { gone = watched.expired(); });
  stream.synchronize();
  EXPECT_TRUE(gone);
}

TEST(Stream, ATaskCannotWaitForItsOwnStream) {
  Stream stream;
  stream.run([&stream] { stream.synchronize(); });
  EXPECT_THAT(refusal_of([&] { stream.synchronize(); }), HasSubstr("wait for the task itself"));
}

TEST(Stream, OfAGpuThatIsNotThereSaysWhy) {
  try {
    Stream stream(Device{DeviceKind::kCuda, 63});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("is not available: "));
  }
}

}  // namespace
}  // namespace lockstep
