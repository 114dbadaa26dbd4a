// Patterns cost what the schedules cost that they stand for, and thousands of ranks have a price.
#include "lockstep/comm/schedule/patterns.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/schedule/price_list.h"
#include "tests/comm/schedule/sweep.h"

namespace lockstep::schedule {
namespace {

constexpr double kPatternBytes[] = {1, 4096, 1e9};

// Of any number of ranks, with everything that a network can share.
const char* const kSharedNetworks[] = {
    "alpha=5us,bandwidth=100Gbit",
    "alpha=5us,bandwidth=100Gbit,inner=nvlink,ranks_per_machine=4,gamma=20GB",
    "outer=rdma,inner=nvlink,ranks_per_machine=4,machines_per_leaf=2,oversubscription=3,"
    "spine_alpha=1us",
    "outer=rdma,inner=nvlink,ranks_per_machine=6,nics_per_machine=4",
    "outer=rdma,inner=pcie,ranks_per_machine=4,nics_per_machine=2,ranks_per_root=2,"
    "root_bandwidth=20GB,inner_over_roots=1,machines_per_leaf=2"};

void expect_price_of_schedule(const Algorithm& algorithm, const Shape& shape,
                              const Topology& topology, const char* network) {
  std::string why;
  const auto by_pattern = profile_of(algorithm, shape, topology, why);
  ASSERT_TRUE(by_pattern) << why;
  const Profile walked = profile(make_schedule(algorithm, shape), topology);
  for (const double bytes : kPatternBytes) {
    const double expected = walked.seconds(bytes);
    EXPECT_NEAR(by_pattern->seconds(bytes), expected, 1e-9 * expected)
        << describe(algorithm, shape) << " on " << network;
  }
}

TEST(Patterns, CostWhatTheirSchedulesCost) {
  for (const Collective collective : kScheduledCollectives) {
    for (const Algorithm& algorithm : algorithms(collective)) {
      for (const char* network : kSharedNetworks) {
        for (const int ranks : {1, 2, 3, 4, 7, 8, 12, 16, 24}) {
          const Topology topology = parse_network(network).with_ranks(ranks);
          Shape shape{.ranks = ranks, .root = ranks / 2, .machines = topology.machines};
          if (algorithm.refuses(shape)) continue;
          expect_price_of_schedule(algorithm, shape, topology, network);
        }
      }
    }
  }
}

TEST(Patterns, CostWhatTheirSchedulesCostOnATorusAndOnUnequalMachines) {
  const char* const torus = "alpha=5us,bandwidth=100Gbit,torus=3x4,hop_alpha=1us";
  const char* const unequal = "alpha=5us,bandwidth=100Gbit,inner=nvlink,nics_per_machine=2";
  for (const Collective collective : kScheduledCollectives) {
    for (const Algorithm& algorithm : algorithms(collective)) {
      const Topology on_torus = parse_network(torus).with_ranks(12);
      const Topology on_unequal =
          parse_network(unequal).with_machines(machines_of_sizes({1, 5, 2, 4}));
      for (const Topology& topology : {on_torus, on_unequal}) {
        const Shape shape{.ranks = 12, .machines = topology.machines};
        if (algorithm.refuses(shape)) continue;
        expect_price_of_schedule(algorithm, shape, topology,
                                 topology.torus.empty() ? unequal : torus);
      }
    }
  }
}

TEST(Patterns, PriceRingsOf16384Ranks) {
  constexpr int kRanks = 16384;
  constexpr double kBytes = 1 << 30;
  const Topology topology = flat_topology(kRanks, {5e-6, 12.5e9});
  const Shape shape{.ranks = kRanks, .machines = topology.machines};
  std::string why;
  const auto ring =
      profile_of(find_algorithm(Collective::kAllReduce, "ring"), shape, topology, why);
  ASSERT_TRUE(ring) << why;
  EXPECT_NEAR(ring->seconds(kBytes), 2 * (kRanks - 1) * (5e-6 + kBytes / kRanks / 12.5e9), 1e-9);
  const auto pairwise =
      profile_of(find_algorithm(Collective::kAllToAll, "pairwise"), shape, topology, why);
  ASSERT_TRUE(pairwise) << why;
  EXPECT_NEAR(pairwise->seconds(kBytes), (kRanks - 1) * (5e-6 + kBytes / kRanks / 12.5e9), 1e-9);
  const auto naive =
      profile_of(find_algorithm(Collective::kAllReduce, "naive"), shape, topology, why);
  ASSERT_TRUE(naive) << why;
  EXPECT_NEAR(naive->seconds(kBytes), (kRanks - 1) * (5e-6 + kBytes / 12.5e9), 1e-6);
}

double all_to_all(const char* algorithm, const char* network, int ranks, double bytes) {
  const Topology topology = parse_network(network).with_ranks(ranks);
  const Shape shape{.ranks = ranks, .machines = topology.machines};
  return cost(make_schedule(find_algorithm(Collective::kAllToAll, algorithm), shape), bytes,
              topology);
}

// Of 8 ranks on 2 nodes, 4 chunks of each rank leave its node: 16 of S/8 through its NICs.
TEST(Network, SharesTheNicsOfAMachineAmongItsRanks) {
  constexpr double kBytes = 8e9;
  const std::string base =
      "alpha=0us,bandwidth=1GB,inner_bandwidth=1000GB,ranks_per_machine=4,nics_per_machine=";
  EXPECT_NEAR(all_to_all("direct", (base + "1").c_str(), 8, kBytes), 16, 1e-9);
  EXPECT_NEAR(all_to_all("direct", (base + "2").c_str(), 8, kBytes), 8, 1e-9);
  EXPECT_NEAR(all_to_all("direct", (base + "4").c_str(), 8, kBytes), 4, 1e-9);
  EXPECT_NEAR(all_to_all("direct", (base + "8").c_str(), 8, kBytes), 4, 1e-9) << "a rank uses one";
}

TEST(Network, SharesAPcieRootAmongItsRanks) {
  constexpr double kBytes = 8e9;
  const std::string base =
      "alpha=0us,bandwidth=1GB,inner_bandwidth=1000GB,ranks_per_machine=4,nics_per_machine=4,";
  EXPECT_NEAR(
      all_to_all("direct", (base + "ranks_per_root=2,root_bandwidth=1GB").c_str(), 8, kBytes), 8,
      1e-9);
  EXPECT_NEAR(
      all_to_all("direct", (base + "ranks_per_root=2,root_bandwidth=100GB").c_str(), 8, kBytes), 4,
      1e-9);
  // Inside the node each rank has 2 more chunks for the other root.
  EXPECT_NEAR(all_to_all("direct",
                         (base + "ranks_per_root=2,root_bandwidth=1GB,inner_over_roots=1").c_str(),
                         8, kBytes),
              12, 1e-9);
}

// Four in a ring of links. To the neighbours a link carries one chunk of S/4, across two: those of
// this rank and of the one before.
TEST(Network, PricesATorusAsLinks) {
  constexpr double kBytes = 4e9;
  const char* const ring = "alpha=1s,bandwidth=1GB,torus=4,hop_alpha=0.25s";
  EXPECT_NEAR(all_to_all("pairwise", ring, 4, kBytes), (1 + 1) + (1.25 + 2) + (1 + 1), 1e-9);
  EXPECT_NEAR(all_to_all("pairwise", "alpha=1s,bandwidth=1GB", 4, kBytes), 6, 1e-9);
  EXPECT_THROW(parse_network("alpha=1s,bandwidth=1GB,torus=4x2").with_ranks(4), Error);
  EXPECT_THROW(parse_network("alpha=1s,bandwidth=1GB,hop_alpha=1s"), Error);
  EXPECT_THROW(parse_network("alpha=1s,bandwidth=1GB,torus=4,nics_per_machine=2"), Error);
  EXPECT_THROW(parse_network("alpha=1s,bandwidth=1GB,ranks_per_root=2"), Error);
  EXPECT_THROW(parse_network("alpha=1s,bandwidth=1GB,inner_over_roots=1"), Error);
}

}  // namespace
}  // namespace lockstep::schedule
