#include "lockstep/comm/schedule/price_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/comm/schedule/generators.h"
#include "tests/comm/schedule/sweep.h"

namespace lockstep::schedule {
namespace {

constexpr double kAlpha = 5e-6;
constexpr double kBandwidth = 12.5e9;
constexpr Link kLink{kAlpha, kBandwidth};
constexpr double kMega = 1e6;

Schedule make(std::string_view algorithm, int ranks, std::vector<int> machines = {}) {
  Shape shape;
  shape.ranks = ranks;
  shape.machines = std::move(machines);
  return make_schedule(find_algorithm(Collective::kAllReduce, algorithm), shape);
}

double relative(double got, double wanted) { return std::abs(got - wanted) / wanted; }

TEST(Cost, OfARingIsTheClosedForm) {
  for (int n = 2; n <= kMostRanks; ++n) {
    for (double bytes : {1.0, 4096.0, 64 * kMega}) {
      const double closed = 2 * (n - 1) * (kAlpha + bytes / (n * kBandwidth));
      EXPECT_LT(relative(cost(make("ring", n), bytes, flat_topology(n, kLink)), closed), 1e-12);
    }
  }
}

TEST(Cost, OfRabenseifnerIsTheClosedForm) {
  for (int n = 2; n <= 64; n *= 2) {
    for (double bytes : {1.0, 4096.0, 64 * kMega}) {
      const double closed =
          2 * std::ceil(std::log2(n)) * kAlpha + 2.0 * (n - 1) * bytes / (n * kBandwidth);
      EXPECT_LT(relative(cost(make("rabenseifner", n), bytes, flat_topology(n, kLink)), closed),
                1e-12);
    }
  }
}

TEST(Cost, OfTheServerIsWhatItsLinkCarries) {
  const int n = 9;
  const double closed = 2 * (n - 1) * (kAlpha + kMega / kBandwidth);
  EXPECT_LT(relative(cost(make("server", n), kMega, flat_topology(n, kLink)), closed), 1e-12);
}

TEST(Cost, OfTreeAndButterflyIsLogRoundsOfTheVector) {
  const double round = kAlpha + kMega / kBandwidth;
  EXPECT_LT(relative(cost(make("tree", 16), kMega, flat_topology(16, kLink)), 8 * round), 1e-12);
  EXPECT_LT(relative(cost(make("butterfly", 16), kMega, flat_topology(16, kLink)), 4 * round),
            1e-12);
}

TEST(Cost, OfCombiningIsAddedWhereGammaIsGiven) {
  Topology topology = flat_topology(8, kLink);
  const double without = cost(make("ring", 8), kMega, topology);
  topology.gamma = 1e-10;
  EXPECT_NEAR(cost(make("ring", 8), kMega, topology) - without, 7 * kMega / 8 * 1e-10, 1e-15);
}

TEST(Cost, OfRoundsAddsUp) {
  const Profile tree = profile(make("tree", 8), flat_topology(8, kLink));
  const std::vector<double> rounds = tree.round_seconds(kMega);
  ASSERT_EQ(rounds.size(), 6u);
  for (double round : rounds) EXPECT_NEAR(round, kAlpha + kMega / kBandwidth, 1e-12);
}

TEST(Cost, OfNothingIsNothing) {
  EXPECT_EQ(cost(make("ring", 1), kMega, flat_topology(1, kLink)), 0);
}

// Two nodes of two ranks. In every round of the ring one message leaves each node, alone on
// its port: the rounds run at the speed of the outer link.
TEST(Contention, RingAcrossMachinesRunsAtTheOuterLink) {
  const Link inner{1e-6, 100e9};
  const Topology topology = machines_topology(4, 2, inner, kLink);
  EXPECT_LT(relative(cost(make("ring", 4), kMega, topology), 6 * (kAlpha + kMega / 4 / kBandwidth)),
            1e-12);
}

// The rows of a grid stay inside nodes where they can, however ranks are placed.
TEST(Contention, GridsFollowTheMachines) {
  const Topology topology = machines_topology(48, 6, {2e-6, 12.5e9}, {20e-6, 1.25e9});
  for (const char* algorithm : {"torus_2d", "mesh_2d"}) {
    Shape shape;
    shape.ranks = 48;
    shape.machines = topology.machines;
    const auto price = [&](std::vector<int> grid) {
      shape.grid = std::move(grid);
      return cost(make_schedule(find_algorithm(Collective::kAllReduce, algorithm), shape),
                  64 * kMega, topology);
    };
    EXPECT_DOUBLE_EQ(price({}), price({8, 6})) << algorithm;
    EXPECT_LT(price({8, 6}), 0.7 * price({6, 8})) << algorithm;
  }
  const auto grid = [](std::vector<int> machines, int extents) {
    Shape shape;
    shape.ranks = static_cast<int>(machines.size());
    shape.machines = std::move(machines);
    return grid_of(shape, extents);
  };
  EXPECT_EQ(grid(topology.machines, 3), (std::vector<int>{2, 4, 6}));
  EXPECT_EQ(grid(std::vector<int>(48, 0), 2), (std::vector<int>{6, 8}));  // one node
  EXPECT_EQ(grid({0, 1, 2, 0, 1, 2}, 2), (std::vector<int>{2, 3}));       // assigned round-robin
  EXPECT_EQ(grid({0, 0, 0, 1, 1, 1}, 2), (std::vector<int>{2, 3}));
  EXPECT_EQ(grid({0, 0, 1, 1, 2, 2}, 2), (std::vector<int>{3, 2}));
}

// With ranks assigned round-robin every message of the ring crosses nodes, two at a time on each
// port.
TEST(Contention, RanksOfAMachineShareItsPort) {
  Topology topology = machines_topology(4, 2, {1e-6, 100e9}, kLink);
  topology.machines = {0, 1, 0, 1};
  EXPECT_LT(
      relative(cost(make("ring", 4), kMega, topology), 6 * (kAlpha + 2 * kMega / 4 / kBandwidth)),
      1e-12);
}

// Eight nodes of one rank on two leaves, uplinks 8:1, so an uplink carries half of one port.
// In every round one message of S/8 goes up each uplink and takes twice as long as the others.
TEST(Contention, OversubscribedUplinksSlowARingAcrossLeaves) {
  Topology topology = flat_topology(8, kLink);
  topology.machines_per_leaf = 4;
  topology.oversubscription = 8;
  EXPECT_DOUBLE_EQ(topology.uplink_bandwidth(0), kBandwidth / 2);
  EXPECT_LT(
      relative(cost(make("ring", 8), kMega, topology), 14 * (kAlpha + 2 * kMega / 8 / kBandwidth)),
      1e-12);
  // At 4:1 an uplink carries what a port does, and the ring does not notice.
  topology.oversubscription = 4;
  EXPECT_LT(
      relative(cost(make("ring", 8), kMega, topology), 14 * (kAlpha + kMega / 8 / kBandwidth)),
      1e-12);
}

// The butterfly's last round sends four whole vectors up each uplink.
TEST(Contention, OversubscribedUplinksSlowTheFarRoundOfAButterfly) {
  Topology topology = flat_topology(8, kLink);
  topology.machines_per_leaf = 4;
  topology.oversubscription = 4;
  topology.spine_alpha = 1e-6;
  const std::vector<double> rounds = profile(make("butterfly", 8), topology).round_seconds(kMega);
  EXPECT_NEAR(rounds[0], kAlpha + kMega / kBandwidth, 1e-12);
  EXPECT_NEAR(rounds[1], kAlpha + kMega / kBandwidth, 1e-12);
  EXPECT_NEAR(rounds[2], kAlpha + 1e-6 + 4 * kMega / kBandwidth, 1e-12);
}

TEST(Contention, ALastLeafWithFewerMachinesHasAThinnerUplink) {
  Topology topology = flat_topology(6, kLink);
  topology.machines_per_leaf = 4;
  EXPECT_DOUBLE_EQ(topology.uplink_bandwidth(0), 4 * kBandwidth);
  EXPECT_DOUBLE_EQ(topology.uplink_bandwidth(1), 2 * kBandwidth);
}

// Four nodes of eight ranks on a fast inner link: a flat ring pays 62 outer
// start-ups, hierarchical 4 of them beside its inner rounds.
TEST(Contention, HierarchicalBeatsAFlatRingOnSlowOuterLinks) {
  const Link inner{1e-6, 200e9};
  const Link outer{30e-6, 3e9};
  const Topology topology = machines_topology(32, 8, inner, outer);
  const double hierarchical = cost(make("hierarchical", 32, topology.machines), kMega, topology);
  const double ring = cost(make("ring", 32), kMega, topology);
  EXPECT_NEAR(hierarchical,
              6 * (inner.alpha + kMega / inner.bandwidth) +
                  2 * (2 * outer.alpha + 3 * kMega / 4 / outer.bandwidth),
              1e-12);
  EXPECT_NEAR(ring, 62 * (outer.alpha + kMega / 32 / outer.bandwidth), 1e-12);
  EXPECT_LT(hierarchical, ring / 2);
}

TEST(Cheapest, FollowsTheSize) {
  Shape shape;
  shape.ranks = 16;
  const Topology topology = flat_topology(16, kLink);
  const auto first = [&](double bytes) {
    return cheapest(Collective::kAllReduce, bytes, shape, topology).front().algorithm->name;
  };
  EXPECT_EQ(first(8), "butterfly");
  EXPECT_EQ(first(100 * kMega), "rabenseifner");
}

// With nodes of a power of two ranks in order, Rabenseifner's near pairs stay inside nodes
// and it is as frugal outside as hierarchical; nodes of six break its pairs.
TEST(Cheapest, FollowsTheTopology) {
  Shape shape;
  const auto first = [&](int ranks_per_machine) {
    shape.ranks = 4 * ranks_per_machine;
    const Topology topology =
        machines_topology(shape.ranks, ranks_per_machine, {1e-6, 200e9}, {30e-6, 3e9});
    const std::vector<Price> prices = cheapest(Collective::kAllReduce, kMega, shape, topology);
    EXPECT_EQ(prices.size(), algorithms(Collective::kAllReduce).size());
    for (std::size_t i = 1; i < prices.size(); ++i) {
      EXPECT_LE(prices[i - 1].seconds, prices[i].seconds);
    }
    return prices.front().algorithm->name;
  };
  EXPECT_EQ(first(6), "hierarchical");
  EXPECT_EQ(first(8), "rabenseifner");
}

TEST(Cheapest, LeavesOutWhatRefusesTheShape) {
  Shape shape;
  shape.ranks = 12;
  shape.grid = {3, 4};
  for (const Price& price :
       cheapest(Collective::kAllReduce, kMega, shape, flat_topology(12, kLink))) {
    EXPECT_NE(price.algorithm->name, "torus_3d");
  }
}

TEST(PriceList, FindsWhereTheCheapestChanges) {
  Shape shape;
  shape.ranks = 4;
  const PriceList list(Collective::kAllReduce, shape, flat_topology(4, kLink));
  const auto reigns = list.reigns(1e9);
  ASSERT_EQ(reigns.size(), 2u);
  EXPECT_EQ(reigns[0].algorithm->name, "butterfly");
  EXPECT_EQ(reigns[1].algorithm->name, "rabenseifner");
  // 2(a + S/B) = 4a + 1.5 S/B at S = 4 a B.
  EXPECT_LT(relative(reigns[1].from, 4 * kAlpha * kBandwidth), 1e-3);
}

// Without a start-up time ring, rabenseifner and others cost the same but for rounding.
TEST(PriceList, RoundingMakesNobodyTheCheapest) {
  for (const int ranks : {2, 3, 4, 7, 8, 12}) {
    Shape shape;
    shape.ranks = ranks;
    const PriceList list(Collective::kAllReduce, shape, flat_topology(ranks, {0, kBandwidth}));
    const auto reigns = list.reigns(64e9);
    ASSERT_EQ(reigns.size(), 1u) << ranks;
    EXPECT_EQ(reigns[0].algorithm->name, ranks == 2 ? "naive" : "ring");
  }
}

TEST(Cost, IsQuickForManyRanks) {
  EXPECT_EQ(profile(make("butterfly", 1024), flat_topology(1024, kLink)).rounds.size(), 10u);
  EXPECT_EQ(profile(make("rabenseifner", 1024), flat_topology(1024, kLink)).rounds.size(), 20u);
  EXPECT_EQ(profile(make("ring", 256), flat_topology(256, kLink)).rounds.size(), 510u);
}

TEST(Network, IsReadFromText) {
  const Network network = parse_network(
      "alpha=5us, bandwidth=100Gbit,inner=nvlink,inner_alpha=1us,ranks_per_machine=8,"
      "machines_per_leaf=4,oversubscription=2,spine_alpha=1us,gamma=50GB");
  EXPECT_DOUBLE_EQ(network.outer.alpha, 5e-6);
  EXPECT_DOUBLE_EQ(network.outer.bandwidth, 12.5e9);
  EXPECT_DOUBLE_EQ(network.inner.alpha, 1e-6);
  EXPECT_DOUBLE_EQ(network.inner.bandwidth, 450e9);
  EXPECT_DOUBLE_EQ(network.gamma, 1 / 50e9);
  const Topology topology = network.with_ranks(20);
  EXPECT_EQ(topology.machines, machines_of_sizes({8, 8, 4}));
  EXPECT_EQ(topology.machines_per_leaf, 4);
  EXPECT_DOUBLE_EQ(topology.oversubscription, 2);
}

TEST(Network, NumbersMachinesFromZero) {
  const Network network = parse_network("outer=rdma");
  EXPECT_EQ(network.with_machines({7, 7, 3, 7, 9}).machines, (std::vector<int>{0, 0, 1, 0, 2}));
  EXPECT_DOUBLE_EQ(network.inner.bandwidth, network.outer.bandwidth);
}

TEST(Network, ExplainsWhatItCannotRead) {
  const auto message = [](std::string_view text) -> std::string {
    try {
      parse_network(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  using testing::HasSubstr;
  EXPECT_THAT(message("alhpa=5us,bandwidth=1GB"), HasSubstr("did you mean alpha?"));
  EXPECT_THAT(message("alpha=5us"), HasSubstr("give alpha and bandwidth"));
  EXPECT_THAT(message("alpha"), HasSubstr("key=value"));
  EXPECT_THAT(message("outer=rmda"), HasSubstr("did you mean rdma?"));
  EXPECT_THAT(message("outer=rdma,outer=pcie"), HasSubstr("twice"));
  EXPECT_THAT(message("outer=rdma,ranks_per_machine=0"), HasSubstr("from 1 up"));
  EXPECT_THAT(message("outer=rdma,oversubscription=2"), HasSubstr("machines_per_leaf"));
  EXPECT_THAT(message("outer=rdma,spine_alpha=2us"), HasSubstr("machines_per_leaf"));
  EXPECT_THAT(message("alpha=5us,bandwidth=0GB"), HasSubstr("must be more than 0"));
}

}  // namespace
}  // namespace lockstep::schedule
