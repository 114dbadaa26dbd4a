// Emulated nodes: comm.emulated_nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/comm/native/threads.h"

namespace lockstep::emulated_hosts_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CommOptions with_hosts(int hosts, const std::string& link = "") {
  CommOptions options;
  options.emulated_nodes = hosts;
  options.emulate = link;
  options.cache_dir.clear();
  return options;
}

TEST(EmulatedHosts, AreDealtOutRanksInOrder) {
  run_threads(
      5, [](Communicator& world) { EXPECT_THAT(world.machines(), ElementsAre(0, 0, 0, 1, 1)); },
      with_hosts(2));
  run_threads(
      3, [](Communicator& world) { EXPECT_THAT(world.machines(), ElementsAre(0, 0, 0)); },
      with_hosts(1));
}

TEST(EmulatedHosts, ShareMemoryInsideAndSendMessagesBetween) {
  for (const char* link : {"", "1Gbit"}) {
    run_threads(
        4,
        [](Communicator& world) {
          std::vector<float> data(17, 1.0f);
          EXPECT_NE(world.choice(all_reduce(data)).algorithm, "fused");
          const auto inside =
              world.split(world.machines()[static_cast<std::size_t>(world.rank())], world.rank());
          EXPECT_EQ(inside->choice(all_reduce(data)).algorithm, "fused");
          const auto lane = world.split(world.rank() % 2, world.rank());
          EXPECT_THAT(lane->machines(), ElementsAre(0, 1));
          EXPECT_NE(lane->choice(all_reduce(data)).algorithm, "fused");
          inside->all_reduce(data);
          lane->all_reduce(data);
          world.all_reduce(data);
          EXPECT_EQ(data, std::vector<float>(17, 16.0f));
        },
        with_hosts(2, link));
  }
}

// On three nodes of two ranks a grid of 3x2 keeps its rows inside: along its columns every rank
// sends 2 (3-1) chunks of 1/6. comm.grid forces another one, whose rows of three cross as well.
TEST(EmulatedHosts, DecideTheGridOfATorus) {
  const auto crossing = [](const std::string& grid) {
    CommOptions options = with_hosts(3);
    options.grid = grid;
    std::mutex mutex;
    std::uint64_t crossed = 0;
    run_threads(
        6,
        [&](Communicator& world) {
          std::vector<std::uint8_t> data(600, 1);
          Call call = all_reduce(data);
          call.algorithm = "torus_2d";
          const std::uint64_t before = world.bytes_across().value();
          world.run(call);
          EXPECT_EQ(data, std::vector<std::uint8_t>(600, 6));
          const std::lock_guard lock(mutex);
          crossed += world.bytes_across().value() - before;
        },
        options);
    return crossed;
  };
  constexpr std::uint64_t kAligned = 6 * 4 * 100;
  EXPECT_EQ(crossing(""), kAligned);
  EXPECT_EQ(crossing("3x2"), kAligned);
  EXPECT_GT(crossing("2x3"), kAligned);
}

TEST(EmulatedHosts, CountWhatCrossesBetweenThem) {
  run_threads(
      4,
      [](Communicator& world) {
        const auto inside = world.split(world.rank() / 2, world.rank());
        const auto lane = world.split(world.rank() % 2, world.rank());
        std::vector<std::uint8_t> mine(100);
        std::vector<std::uint8_t> two(200);
        inside->all_gather(mine, two);
        EXPECT_EQ(inside->bytes_across(), 0u);
        lane->all_gather(mine, two);
        EXPECT_EQ(lane->bytes_across(), 100u);
        lane->all_to_all(std::vector<std::uint8_t>(34), std::span(two).first(34));
        EXPECT_EQ(lane->bytes_across(), 117u);
        const std::uint64_t before = world.bytes_across().value();
        if (world.rank() == 0) world.send(mine, 1);
        if (world.rank() == 1) world.receive(mine, 0);
        EXPECT_EQ(world.bytes_across(), before);
        if (world.rank() == 0) world.send(mine, 3);
        if (world.rank() == 3) world.receive(mine, 0);
        EXPECT_EQ(world.bytes_across().value() - before, world.rank() == 0 ? 100u : 0u);
      },
      with_hosts(2));
}

// The ranks of a node send at once what its one NIC lets through one after the other.
TEST(EmulatedHosts, ShareTheirNicAmongTheirRanks) {
  constexpr std::size_t kBytes = 250'000;
  constexpr double kRate = 50e6;
  auto first_began = SteadyClock::time_point::max();
  auto last_ended = SteadyClock::time_point::min();
  std::mutex mutex;
  run_threads(
      4,
      [&](Communicator& world) {
        const auto lane = world.split(world.rank() % 2, world.rank());
        std::vector<std::uint8_t> data(kBytes);
        world.barrier();
        const auto began = SteadyClock::now();
        if (lane->rank() == 0) {
          lane->send(data, 1);
        } else {
          lane->receive(data, 0);
        }
        const auto ended = SteadyClock::now();
        const std::lock_guard lock(mutex);
        first_began = std::min(first_began, began);
        last_ended = std::max(last_ended, ended);
      },
      with_hosts(2, "400Mbit"));
  const std::chrono::duration<double> seconds = last_ended - first_began;
  EXPECT_GE(seconds.count(), 0.9 * 2 * kBytes / kRate);
}

TEST(EmulatedHosts, AreRefusedWhereThereAreFewerRanks) {
  try {
    run_threads(
        2, [](Communicator&) {}, with_hosts(3));
    FAIL() << "three machines were made of two ranks";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("comm.emulated_nodes = 3"));
  }
  CommOptions options = with_hosts(2);
  options.transport = TransportChoice::kTcp;
  EXPECT_THROW(make_thread_world(2, options), Error);
}

}  // namespace
}  // namespace lockstep::emulated_hosts_test
