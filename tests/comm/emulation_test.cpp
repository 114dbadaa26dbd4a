// Emulated links: what must not be faster never is; how near to the model times come is tried a few
// times, for the machine may be busy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/comm/transport/paced_channel.h"
#include "lockstep/launch/make_world.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Seconds = std::chrono::duration<double>;
using TimePoint = SteadyClock::time_point;

constexpr const char* kTestLink = "400Mbit,2ms";
constexpr double kTestRate = 50e6;   // bytes per second
constexpr double kTestDelay = 2e-3;  // seconds

CommOptions emulating(const std::string& link) {
  CommOptions options;
  options.emulate = link;
  options.cache_dir.clear();
  return options;
}

// When ranks began and ended something.
class Span {
 public:
  void run(const std::function<void()>& body) {
    const TimePoint began = SteadyClock::now();
    body();
    const TimePoint ended = SteadyClock::now();
    const std::lock_guard lock(mutex_);
    first_began_ = std::min(first_began_, began);
    last_began_ = std::max(last_began_, began);
    last_ended_ = std::max(last_ended_, ended);
  }
  double longest() const { return Seconds(last_ended_ - first_began_).count(); }
  double once_all_began() const { return Seconds(last_ended_ - last_began_).count(); }

 private:
  std::mutex mutex_;
  TimePoint first_began_ = TimePoint::max();
  TimePoint last_began_ = TimePoint::min();
  TimePoint last_ended_ = TimePoint::min();
};

// Runs the body on every rank at once, over emulated links.
void on_emulated(int ranks, Span& span, const std::function<void(Communicator&)>& body) {
  run_threads(
      ranks,
      [&](Communicator& world) {
        world.barrier();
        span.run([&] { body(world); });
      },
      emulating(kTestLink));
}

// The time from the first rank's start to the last one's end is never less than the model's. Nor is
// it much more, at least once in a few tries; a wait that nothing ends in time takes tens of times
// as long.
void expect_takes(double model, int ranks, const std::function<void(Communicator&)>& body) {
  constexpr double kBusyMachine = 5;
  double best = 1e9;
  for (int i = 0; i < 10 && best > kBusyMachine * model; ++i) {
    Span span;
    on_emulated(ranks, span, body);
    EXPECT_GE(span.longest(), model);
    best = std::min(best, span.once_all_began());
  }
  EXPECT_LE(best, kBusyMachine * model);
}

constexpr std::size_t kPart = 500'000;
constexpr double kPartSeconds = kPart / kTestRate;

std::vector<std::uint8_t> filled(int value) {
  return std::vector<std::uint8_t>(kPart, static_cast<std::uint8_t>(value));
}

TEST(Emulation, AMessageTakesItsDelayAndItsBytesTheirTime) {
  expect_takes(kTestDelay + kPartSeconds, 2, [](Communicator& world) {
    std::vector<std::uint8_t> data = filled(world.rank());
    if (world.rank() == 0) return world.send(data, 1);
    world.receive(data, 0);
    EXPECT_EQ(data, filled(0));
  });
}

TEST(Emulation, AMessageOfNothingTakesTheDelay) {
  for (const std::size_t bytes : {0, 1, 8}) {
    Span span;
    on_emulated(2, span, [&](Communicator& world) {
      std::vector<std::uint8_t> data(bytes);
      if (world.rank() == 0) return world.send(data, 1);
      world.receive(data, 0);
    });
    EXPECT_GE(span.longest(), kTestDelay);
  }
}

TEST(Emulation, BothDirectionsAreFree) {
  expect_takes(kTestDelay + kPartSeconds, 2, [](Communicator& world) {
    const std::vector<std::uint8_t> mine = filled(world.rank());
    std::vector<std::uint8_t> theirs(kPart);
    Work sent = world.start(send(mine, 1 - world.rank()));
    world.receive(theirs, 1 - world.rank());
    sent.wait();
    EXPECT_EQ(theirs, filled(1 - world.rank()));
  });
}

TEST(Emulation, WhatOneRankSendsToAllSharesItsNic) {
  expect_takes(kTestDelay + 2 * kPartSeconds, 3, [](Communicator& world) {
    std::vector<std::uint8_t> data = filled(world.rank());
    if (world.rank() > 0) return world.receive(data, 0);
    Work first = world.start(send(data, 1));
    Work second = world.start(send(data, 2));
    first.wait();
    second.wait();
  });
}

TEST(Emulation, WhatOneRankReceivesFromAllSharesItsNic) {
  expect_takes(kTestDelay + 2 * kPartSeconds, 3, [](Communicator& world) {
    std::vector<std::uint8_t> data = filled(world.rank());
    if (world.rank() > 0) return world.send(data, 0);
    std::vector<std::uint8_t> more(kPart);
    Work first = world.start(receive(data, 1));
    Work second = world.start(receive(more, 2));
    first.wait();
    second.wait();
    EXPECT_EQ(data, filled(1));
    EXPECT_EQ(more, filled(2));
  });
}

TEST(Emulation, AllCommunicatorsOfARankShareItsNic) {
  Span span;
  run_threads(
      2,
      [&](Communicator& world) {
        const auto part = world.split(0, world.rank());
        std::vector<std::uint8_t> data = filled(world.rank());
        std::vector<std::uint8_t> more = data;
        const auto call = [&](std::vector<std::uint8_t>& bytes) {
          return world.rank() == 0 ? send(bytes, 1) : receive(bytes, 0);
        };
        span.run([&] {
          Work first = world.start(call(data));
          Work second = part->start(call(more));
          first.wait();
          second.wait();
        });
      },
      emulating(kTestLink));
  EXPECT_GE(span.longest(), kTestDelay + 2 * kPartSeconds);
}

TEST(Emulation, ARingTakesWhatItsFormulaSays) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 4 * 17 * 1024;  // of floats
  const double hop = kTestDelay + kCount * sizeof(float) / (kRanks * kTestRate);
  expect_takes(2 * (kRanks - 1) * hop, kRanks, [&](Communicator& world) {
    const TimePoint began = SteadyClock::now();
    std::vector<float> data(kCount, static_cast<float>(world.rank()));
    Call call = all_reduce(data);
    call.algorithm = "ring";
    world.run(call);
    EXPECT_EQ(data, std::vector<float>(kCount, 0 + 1 + 2 + 3));
    // However late a rank is, the chunk that it sends first comes back once round the ring.
    EXPECT_GE(seconds_since(began), kRanks * hop);
  });
}

TEST(Emulation, BurnsNoCpuWhileItWaits) {
  const auto cpu_seconds = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  };
  // Nearly all of the time is the link's delay. A wait that spins gets at least half of a core that
  // it shares with another thread; one that sleeps takes next to nothing, under a sanitizer too.
  run_threads(
      2,
      [&](Communicator& world) {
        world.barrier();
        std::vector<std::uint8_t> data(17);
        const TimePoint began = SteadyClock::now();
        const double before = cpu_seconds();
        if (world.rank() == 0) world.send(data, 1);
        world.receive(data, 1 - world.rank());
        if (world.rank() == 1) world.send(data, 0);
        EXPECT_LT(cpu_seconds() - before, 0.2 * seconds_since(began));
      },
      emulating("400Mbit,300ms"));
}

TEST(Emulation, NothingGoesThroughSharedMemory) {
  run_threads(
      3,
      [](Communicator& world) {
        SymmetricBuffer memory = world.allocate(17 * sizeof(float));
        const Data data(memory.data(), 17, DType::kF32);
        const Choice choice = world.choice(all_reduce(data));
        EXPECT_NE(choice.algorithm, "fused");
        EXPECT_THAT(choice.why, HasSubstr("links emulated as outer 2 ms 50 MB/s"));
        auto* const floats = reinterpret_cast<float*>(memory.data());
        std::iota(floats, floats + 17, static_cast<float>(world.rank()));
        Call call = all_reduce(data);
        world.run(call);
        for (int i = 0; i < 17; ++i) EXPECT_EQ(floats[i], static_cast<float>(3 * i + 3));
        world.signal((world.rank() + 1) % 3);
        world.wait_signal((world.rank() + 2) % 3);
        // A single rank has no links.
        const auto alone = world.split(world.rank(), 0);
        EXPECT_EQ(alone->choice(all_reduce(data)).algorithm, "fused");
      },
      emulating(kTestLink));
}

std::string refusal(CommOptions options, ErrorCode code) {
  World world;
  world.size = 2;  // the other rank does not exist
  try {
    make_world(world, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error was thrown";
}

TEST(Emulation, IsRefusedWhereItCannotBeBeforeRanksMeet) {
  CommOptions options = emulating("1Gbps");
  const std::string form = refusal(options, ErrorCode::kInvalidArgument);
  EXPECT_THAT(form, HasSubstr("LOCKSTEP_COMM_EMULATE"));
  EXPECT_THAT(form, HasSubstr("'1Gbps'"));
  EXPECT_THAT(form, HasSubstr("like 1Gbit,100us"));
  EXPECT_THROW(make_thread_world(2, options), Error);
  options = emulating(kTestLink);
  options.backend = Backend::kMpi;
  EXPECT_THAT(refusal(options, ErrorCode::kUnsupported), HasSubstr("comm.backend = \"mpi\""));
  options = emulating(kTestLink);
  options.transport = TransportChoice::kTcp;
  EXPECT_THAT(refusal(options, ErrorCode::kUnsupported), HasSubstr("comm.transport = \"tcp\""));
}

// The two ends of a link through memory of this process.
struct PacedPair {
  explicit PacedPair(const LinkEmulation& link)
      : left(transport::RingChannel(*there, *back, *doorbell),
             std::make_shared<transport::EmulatedNic>(link)),
        right(transport::RingChannel(*back, *there, *doorbell),
              std::make_shared<transport::EmulatedNic>(link)) {}

  std::unique_ptr<shared::Ring> there = std::make_unique<shared::Ring>();
  std::unique_ptr<shared::Ring> back = std::make_unique<shared::Ring>();
  std::unique_ptr<shared::Doorbell> doorbell = std::make_unique<shared::Doorbell>();
  transport::PacedChannel left;
  transport::PacedChannel right;
};

TEST(PacedChannel, GivesBytesInOrderAndSaysWhenToAskAgain) {
  PacedPair pair({1e9, 1ms});
  std::vector<std::byte> sent(300'000);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * i >> 7);
  std::vector<std::byte> got;
  std::size_t gone = 0;
  EXPECT_EQ(pair.right.read_due(), kNoDeadline);
  EXPECT_TRUE(pair.right.peek().empty());
  while (got.size() < sent.size()) {
    const std::span rest = std::span(sent).subspan(gone);
    const std::size_t odd = std::min<std::size_t>(rest.size(), 17);
    const std::span<const std::byte> parts[] = {rest.first(odd), rest.subspan(odd)};
    gone += pair.left.write(parts);
    const std::span<const std::byte> arrived = pair.right.peek();
    if (arrived.empty()) {
      if (pair.right.read_due() != kNoDeadline)
        std::this_thread::sleep_until(pair.right.read_due());
      continue;
    }
    const std::size_t bytes = std::min<std::size_t>(arrived.size(), 40'007);
    got.insert(got.end(), arrived.begin(), arrived.begin() + static_cast<long>(bytes));
    pair.right.consume(bytes);
  }
  EXPECT_EQ(got, sent);
}

TEST(PacedChannel, ASenderIsNotFarAheadOfItsNic) {
  const LinkEmulation link{1e6, 0ns};
  PacedPair pair(link);
  const std::vector<std::byte> bytes(100'000);
  const std::span<const std::byte> part = bytes;
  std::size_t moved = 0;
  while (true) {
    const std::size_t now = pair.left.write({&part, 1});
    moved += now;
    if (now == 0) break;
  }
  EXPECT_GT(moved, 0u);
  EXPECT_LT(moved, bytes.size()) << "of a tenth of a second";
  EXPECT_NE(pair.left.write_due(), kNoDeadline);
}

TEST(PacedChannel, RefusesAPieceThatCannotBe) {
  PacedPair pair({1e9, 0ns});
  for (std::byte& byte : std::span(pair.there->bytes).first(16)) byte = std::byte{0xff};
  pair.there->written = 16;
  EXPECT_THROW(pair.right.peek(), Error);
}

}  // namespace
}  // namespace lockstep
