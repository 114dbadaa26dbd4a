// The closed forms of the field, C3 to C14, against what the verifier counts.
#include "lockstep/comm/schedule/formula.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "lockstep/comm/schedule/generators.h"
#include "lockstep/comm/schedule/verify.h"
#include "tests/comm/schedule/sweep.h"

namespace lockstep::schedule {
namespace {

Traffic traffic_of(Collective collective, std::string_view algorithm, Shape shape) {
  return verify(make_schedule(find_algorithm(collective, algorithm), shape),
                Placement::kOutOfPlace);
}
Traffic traffic_of(Collective collective, std::string_view algorithm, int ranks) {
  Shape shape;
  shape.ranks = ranks;
  return traffic_of(collective, algorithm, shape);
}
Traffic all_reduce(std::string_view algorithm, int ranks) {
  return traffic_of(Collective::kAllReduce, algorithm, ranks);
}

// The sizes of a rank's messages in vectors, in the order of rounds.
std::vector<double> messages_sent(std::string_view algorithm, int ranks, int rank) {
  Shape shape;
  shape.ranks = ranks;
  const Schedule schedule = make_schedule(find_algorithm(Collective::kAllReduce, algorithm), shape);
  std::vector<double> sizes;
  for (const Round& round : schedule.programs[static_cast<std::size_t>(rank)].rounds) {
    for (const Step& step : round) {
      if (step.kind == StepKind::kSend) {
        sizes.push_back(step.source.count * chunk_share(schedule));
      }
    }
  }
  return sizes;
}

TEST(Formula, AgreesWithTheVerifierForEverySchedule) {
  for_every_schedule([](const Algorithm& algorithm, const Shape& shape) {
    const Formula& formula = find_formula(algorithm.collective, algorithm.name);
    const Traffic traffic = count_traffic(make_schedule(algorithm, shape));
    ASSERT_EQ(traffic.rounds, formula.rounds(shape)) << describe(algorithm, shape);
    ASSERT_NEAR(traffic.sent_in_all(), formula.sent_in_all(shape), 1e-9)
        << describe(algorithm, shape);
  });
}

TEST(C3, AllReduceIsReduceScatterPlusAllGatherInTraffic) {
  for (int n = 1; n <= kMostRanks; ++n) {
    const Traffic whole = all_reduce("ring", n);
    const Traffic first = traffic_of(Collective::kReduceScatter, "ring", n);
    const Traffic second = traffic_of(Collective::kAllGather, "ring", n);
    EXPECT_EQ(whole.rounds, first.rounds + second.rounds);
    for (int r = 0; r < n; ++r) {
      EXPECT_NEAR(whole.sent_by(r), first.sent_by(r) + second.sent_by(r), 1e-12);
    }
  }
}

TEST(C4, BroadcastAndReduceTakeLogRounds) {
  for (Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
    EXPECT_EQ(traffic_of(collective, "binomial", 8).rounds, 3);
    for (int n = 1; n <= kMostRanks; ++n) {
      Shape shape;
      shape.ranks = n;
      shape.root = n / 2;
      EXPECT_EQ(traffic_of(collective, "binomial", shape).rounds, std::ceil(std::log2(n)));
    }
  }
}

TEST(C5, NaiveMovesNTimesNMinusOneVectors) {
  for (int n = 1; n <= kMostRanks; ++n) {
    const Traffic traffic = all_reduce("naive", n);
    EXPECT_EQ(traffic.sent_in_all(), n * (n - 1));
    for (int r = 0; r < n; ++r) EXPECT_EQ(traffic.sent_by(r), n - 1);
  }
}

// 2NM counts the server as one more than the workers; here it is one of them and has no message to
// itself.
TEST(C6, ServerMovesTwoVectorsForEveryOtherWorker) {
  for (int n = 2; n <= kMostRanks; ++n) {
    const Traffic traffic = all_reduce("server", n);
    EXPECT_EQ(traffic.rounds, 2);
    EXPECT_EQ(traffic.sent_in_all(), 2 * (n - 1));
    EXPECT_EQ(traffic.ranks[0].chunks_received, n - 1);
    EXPECT_EQ(traffic.ranks[0].chunks_sent, n - 1);
    for (int r = 1; r < n; ++r) EXPECT_EQ(traffic.sent_by(r), 1);
  }
}

TEST(C7, RingSendsOneNthInEachOfTwoNMinusOneRounds) {
  for (int n = 1; n <= kMostRanks; ++n) {
    const Traffic traffic = all_reduce("ring", n);
    EXPECT_EQ(traffic.rounds, 2 * (n - 1));
    for (int r = 0; r < n; ++r) {
      EXPECT_NEAR(traffic.sent_by(r), 2.0 * (n - 1) / n, 1e-12);
      const std::vector<double> sizes = messages_sent("ring", n, r);
      EXPECT_EQ(std::ssize(sizes), 2 * (n - 1));
      for (double size : sizes) EXPECT_DOUBLE_EQ(size, 1.0 / n);
    }
  }
}

TEST(C7, BidirectionalRingSendsTheSameInBothDirections) {
  for (int n = 3; n <= kMostRanks; ++n) {
    const Traffic traffic = all_reduce("bidirectional_ring", n);
    EXPECT_EQ(traffic.rounds, 2 * (n - 1));
    for (int r = 0; r < n; ++r) {
      EXPECT_NEAR(traffic.sent_by(r), 2.0 * (n - 1) / n, 1e-12);
      EXPECT_EQ(traffic.ranks[static_cast<std::size_t>(r)].messages_sent, 4 * (n - 1));
    }
  }
}

// Exact where the field says about 2NM: 2(N-1) vectors.
TEST(C8, TreeTakesTwiceLogRoundsAndMovesTwoNMinusOneVectors) {
  for (int n = 1; n <= kMostRanks; ++n) {
    const Traffic traffic = all_reduce("tree", n);
    EXPECT_EQ(traffic.rounds, 2 * std::ceil(std::log2(n)));
    EXPECT_EQ(traffic.sent_in_all(), 2 * (n - 1));
    EXPECT_EQ(all_reduce("double_binary_tree", n).sent_in_all(), 2 * (n - 1));
  }
}

TEST(C8, NoRankHasChildrenInBothBinaryTrees) {
  for (int n = 2; n <= kMostRanks; ++n) {
    Shape shape;
    shape.ranks = n;
    shape.segments = 1;
    const Schedule schedule =
        make_schedule(find_algorithm(Collective::kAllReduce, "double_binary_tree"), shape);
    for (const Program& program : schedule.programs) {
      int children[2] = {0, 0};
      for (const Round& round : program.rounds) {
        for (const Step& step : round) {
          if (step.kind == StepKind::kReceiveReduce) ++children[step.target.first];
        }
      }
      EXPECT_TRUE(children[0] == 0 || children[1] == 0) << n << " ranks";
      EXPECT_LE(std::max(children[0], children[1]), 2) << n << " ranks";
    }
  }
}

TEST(C9, NaiveHalvingDoublingSendsTheWholeVectorInTwiceLogRounds) {
  for (int n = 1; n <= kMostRanks; ++n) {
    EXPECT_EQ(all_reduce("halving_doubling_naive", n).rounds, 2 * std::ceil(std::log2(n)));
    for (int r = 0; r < n; ++r) {
      for (double size : messages_sent("halving_doubling_naive", n, r)) EXPECT_EQ(size, 1);
    }
  }
}

TEST(C10, ButterflySendsLogNVectorsPerWorker) {
  for (int n = 1; n <= 64; n *= 2) {
    const int log = floor_log2(n);
    const Traffic traffic = all_reduce("butterfly", n);
    EXPECT_EQ(traffic.rounds, log);
    EXPECT_EQ(traffic.sent_in_all(), n * log);
    for (int r = 0; r < n; ++r) EXPECT_EQ(traffic.sent_by(r), log);
  }
}

TEST(C11, RabenseifnerSendsHalvesThenQuarters) {
  for (int n = 1; n <= 64; n *= 2) {
    const int log = floor_log2(n);
    const Traffic traffic = all_reduce("rabenseifner", n);
    EXPECT_EQ(traffic.rounds, 2 * log);
    for (int r = 0; r < n; ++r) {
      EXPECT_DOUBLE_EQ(traffic.sent_by(r), 2.0 * (n - 1) / n);
      std::vector<double> sizes;
      for (int k = 1; k <= log; ++k) sizes.push_back(std::ldexp(1.0, -k));
      for (int k = log; k >= 1; --k) sizes.push_back(std::ldexp(1.0, -k));
      EXPECT_EQ(messages_sent("rabenseifner", n, r), sizes);
    }
  }
}

// Between powers of two: still 2 ceil(log2 N) rounds and 2(N-1)S in all, but some ranks serve two.
TEST(C11, RabenseifnerTakesCeilLogRoundsForAnyNumberOfRanks) {
  for (int n = 1; n <= kMostRanks; ++n) {
    const Traffic traffic = all_reduce("rabenseifner", n);
    EXPECT_EQ(traffic.rounds, 2 * ceil_log2(n));
    EXPECT_NEAR(traffic.sent_in_all(), 2 * (n - 1), 1e-9);
    EXPECT_LE(traffic.sent_by_busiest(), 2.5);
  }
}

TEST(C12, OnlyLeadersOfMachinesTalkAcross) {
  for (int n = 1; n <= kMostRanks; ++n) {
    for (const std::vector<int>& machines : layouts(n)) {
      Shape shape;
      shape.ranks = n;
      shape.machines = machines;
      const Schedule schedule =
          make_schedule(find_algorithm(Collective::kAllReduce, "hierarchical"), shape);
      const std::vector<int> leaders = machines_of(shape).leaders;
      double across = 0;
      for (int r = 0; r < n; ++r) {
        for (const Round& round : schedule.programs[static_cast<std::size_t>(r)].rounds) {
          for (const Step& step : round) {
            if (step.kind != StepKind::kSend) continue;
            if (machines[static_cast<std::size_t>(r)] ==
                machines[static_cast<std::size_t>(step.peer)]) {
              continue;
            }
            EXPECT_TRUE(std::count(leaders.begin(), leaders.end(), r));
            EXPECT_TRUE(std::count(leaders.begin(), leaders.end(), step.peer));
            across += step.source.count * chunk_share(schedule);
          }
        }
      }
      EXPECT_NEAR(across, 2.0 * (std::ssize(leaders) - 1), 1e-9);
    }
  }
}

TEST(C13, ColumnTrafficOfATorusShrinksByTheRowLength) {
  for (int rows : {2, 3, 4, 5}) {
    for (int columns : {2, 3, 4, 6}) {
      Shape shape;
      shape.ranks = rows * columns;
      shape.grid = {rows, columns};
      const Schedule schedule =
          make_schedule(find_algorithm(Collective::kAllReduce, "torus_2d"), shape);
      EXPECT_EQ(communication_rounds(schedule), 2 * (rows - 1) + 2 * (columns - 1));
      for (int r = 0; r < shape.ranks; ++r) {
        double along_row = 0;
        double along_column = 0;
        for (const Round& round : schedule.programs[static_cast<std::size_t>(r)].rounds) {
          for (const Step& step : round) {
            if (step.kind != StepKind::kSend) continue;
            const bool same_row = step.peer / columns == r / columns;
            ASSERT_TRUE(same_row || step.peer % columns == r % columns);
            (same_row ? along_row : along_column) += step.source.count * chunk_share(schedule);
          }
        }
        EXPECT_NEAR(along_row, 2.0 * (columns - 1) / columns, 1e-12);
        EXPECT_NEAR(along_column, 2.0 * (rows - 1) / rows / columns, 1e-12);
      }
    }
  }
}

TEST(C14, OnlyNeighboursOfTheMeshTalk) {
  for (int n = 1; n <= kMostRanks; ++n) {
    for (const Shape& shape : shapes(find_algorithm(Collective::kAllReduce, "mesh_2d"), n)) {
      const int columns = grid_of(shape, 2)[1];
      const Schedule schedule =
          make_schedule(find_algorithm(Collective::kAllReduce, "mesh_2d"), shape);
      for (int r = 0; r < n; ++r) {
        for (const Round& round : schedule.programs[static_cast<std::size_t>(r)].rounds) {
          for (const Step& step : round) {
            if (step.peer < 0) continue;
            const int distance = std::abs(step.peer / columns - r / columns) +
                                 std::abs(step.peer % columns - r % columns);
            ASSERT_EQ(distance, 1);
          }
        }
      }
    }
  }
}

TEST(C14, MeshAndTorusOfThreeExtentsTakeTheirOwnRounds) {
  Shape shape;
  shape.ranks = 24;
  shape.grid = {4, 6};
  EXPECT_EQ(traffic_of(Collective::kAllReduce, "mesh_2d", shape).rounds, 2 * 3 + 2 * 5);
  shape.grid = {2, 3, 4};
  EXPECT_EQ(traffic_of(Collective::kAllReduce, "torus_3d", shape).rounds, 2 * (1 + 2 + 3));
}

TEST(Grid, IsTheMostEvenOneUnlessGiven) {
  Shape shape;
  shape.ranks = 12;
  EXPECT_EQ(grid_of(shape, 2), (std::vector<int>{3, 4}));
  EXPECT_EQ(grid_of(shape, 3), (std::vector<int>{2, 2, 3}));
  shape.ranks = 13;
  EXPECT_EQ(grid_of(shape, 2), (std::vector<int>{1, 13}));
}

}  // namespace
}  // namespace lockstep::schedule
