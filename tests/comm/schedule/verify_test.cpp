#include "lockstep/comm/schedule/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "tests/comm/schedule/numeric.h"
#include "tests/comm/schedule/sweep.h"

namespace lockstep::schedule {
namespace {

TEST(EverySchedule, ComputesItsCollectiveOutOfPlace) {
  for_every_schedule([](const Algorithm& algorithm, const Shape& shape) {
    ASSERT_NO_THROW(verify(make_schedule(algorithm, shape), Placement::kOutOfPlace))
        << describe(algorithm, shape);
  });
}

TEST(EverySchedule, ComputesItsCollectiveInPlace) {
  for_every_schedule([](const Algorithm& algorithm, const Shape& shape) {
    if (algorithm.collective == Collective::kAllToAll) return;
    ASSERT_NO_THROW(verify(make_schedule(algorithm, shape), Placement::kInPlace))
        << describe(algorithm, shape);
  });
}

TEST(EverySchedule, SendsAsMuchAsItReceives) {
  for_every_schedule([](const Algorithm& algorithm, const Shape& shape) {
    const Traffic traffic = count_traffic(make_schedule(algorithm, shape));
    RankTraffic all;
    for (const RankTraffic& rank : traffic.ranks) {
      all.messages_sent += rank.messages_sent;
      all.messages_received += rank.messages_received;
      all.chunks_sent += rank.chunks_sent;
      all.chunks_received += rank.chunks_received;
    }
    ASSERT_EQ(all.messages_sent, all.messages_received) << describe(algorithm, shape);
    ASSERT_EQ(all.chunks_sent, all.chunks_received) << describe(algorithm, shape);
  });
}

TEST(EverySchedule, EndsWithARoundThatDoesSomething) {
  for_every_schedule([](const Algorithm& algorithm, const Shape& shape) {
    const Schedule schedule = make_schedule(algorithm, shape);
    const std::size_t rounds = schedule.programs[0].rounds.size();
    ASSERT_GE(rounds, 1u) << describe(algorithm, shape);
    for (std::size_t round = 0; round < rounds; ++round) {
      bool busy = false;
      for (const Program& program : schedule.programs) busy |= !program.rounds[round].empty();
      ASSERT_TRUE(busy) << describe(algorithm, shape) << ", round " << round;
    }
  });
}

// Memory that steps of `rank` touch, in place: input and output of a chunk are the same.
std::set<std::pair<Space, int>> memory_of(const Schedule& schedule, int rank,
                                          const Region& region) {
  std::set<std::pair<Space, int>> cells;
  for (int i = region.first; i < region.first + region.count; ++i) {
    const bool shared = region.space == Space::kInput && in_output(schedule, rank, i);
    cells.insert({shared ? Space::kOutput : region.space, i});
  }
  return cells;
}

TEST(EverySchedule, NeverWritesWhatItSendsInTheSameRound) {
  for_every_schedule([](const Algorithm& algorithm, const Shape& shape) {
    if (algorithm.collective == Collective::kAllToAll) return;
    const Schedule schedule = make_schedule(algorithm, shape);
    for (int rank = 0; rank < shape.ranks; ++rank) {
      for (const Round& round : schedule.programs[static_cast<std::size_t>(rank)].rounds) {
        std::set<std::pair<Space, int>> sent;
        for (const Step& step : round) {
          const auto source = memory_of(schedule, rank, step.source);
          if (step.kind == StepKind::kSend) {
            sent.insert(source.begin(), source.end());
            continue;
          }
          const auto target = memory_of(schedule, rank, step.target);
          if (step.kind == StepKind::kCopy && source == target) continue;  // nothing to do in place
          for (const auto& cell : target) {
            ASSERT_FALSE(sent.contains(cell)) << describe(algorithm, shape) << " rank " << rank;
          }
        }
      }
    }
  });
}

TEST(EverySchedule, ListsSendsFirst) {
  for_every_schedule([](const Algorithm& algorithm, const Shape& shape) {
    for (const Program& program : make_schedule(algorithm, shape).programs) {
      for (const Round& round : program.rounds) {
        ASSERT_TRUE(std::is_partitioned(round.begin(), round.end(), [](const Step& step) {
          return step.kind == StepKind::kSend;
        })) << describe(algorithm, shape);
      }
    }
  });
}

// Chunks of 2 elements, but for one that is empty and one that is longer, where they may differ.
std::vector<int> odd_sizes(const Schedule& schedule) {
  std::vector<int> sizes(static_cast<std::size_t>(chunk_numbers(schedule)), 2);
  if (schedule.collective != Collective::kReduceScatter) {
    sizes.back() = 0;
    sizes.front() = 3;
  }
  return sizes;
}

// What chunk `chunk` of rank's output must be, in double precision.
std::vector<double> expected(const Schedule& schedule, const NumericRun& run, int chunk) {
  std::vector<double> sum;
  for (int rank = 0; rank < schedule.shape.ranks; ++rank) {
    if (!in_input(schedule, rank, chunk)) continue;
    const Values& values = run.given(rank, chunk);
    sum.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) sum[i] += static_cast<double>(values[i]);
  }
  return sum;
}

void run_on_floats(const Algorithm& algorithm, const Shape& shape, Placement placement) {
  const Schedule schedule = make_schedule(algorithm, shape);
  NumericRun run(schedule, placement, odd_sizes(schedule), 7);
  run.run();
  for (int chunk = 0; chunk < chunk_numbers(schedule); ++chunk) {
    const std::vector<double> wanted = expected(schedule, run, chunk);
    const Values* first = nullptr;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      if (!in_output(schedule, rank, chunk)) continue;
      const Values& got = run.result(rank, chunk);
      ASSERT_EQ(got.size(), wanted.size()) << describe(algorithm, shape);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], wanted[i], 0.01) << describe(algorithm, shape) << " rank " << rank;
      }
      if (first == nullptr) first = &got;
      const bool same =
          got.empty() || std::memcmp(first->data(), got.data(), got.size() * sizeof(float)) == 0;
      ASSERT_TRUE(same) << describe(algorithm, shape) << ": rank " << rank
                        << " differs in its bits";
    }
  }
}

TEST(EverySchedule, GivesAllRanksTheSameBits) {
  for_every_schedule([](const Algorithm& algorithm, const Shape& shape) {
    run_on_floats(algorithm, shape, Placement::kOutOfPlace);
    if (algorithm.collective != Collective::kAllToAll) {
      run_on_floats(algorithm, shape, Placement::kInPlace);
    }
  });
}

TEST(AllReduce, ByRingIsReduceScatterThenAllGatherToTheLastBit) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    Shape shape;
    shape.ranks = ranks;
    const std::vector<int> sizes(static_cast<std::size_t>(ranks), 3);
    const Schedule whole = make_schedule(find_algorithm(Collective::kAllReduce, "ring"), shape);
    const Schedule half = make_schedule(find_algorithm(Collective::kReduceScatter, "ring"), shape);
    NumericRun all_reduce(whole, Placement::kOutOfPlace, sizes, 3);
    NumericRun reduce_scatter(half, Placement::kOutOfPlace, sizes, 3);
    all_reduce.run();
    reduce_scatter.run();
    for (int chunk = 0; chunk < ranks; ++chunk) {
      EXPECT_EQ(all_reduce.result(0, chunk), reduce_scatter.result(chunk, chunk));
    }
  }
}

}  // namespace
}  // namespace lockstep::schedule
