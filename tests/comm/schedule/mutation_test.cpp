// The verifier must catch what is broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/schedule/verify.h"
#include "tests/comm/schedule/sweep.h"

namespace lockstep::schedule {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Schedule make(Collective collective, std::string_view algorithm, int ranks) {
  Shape shape;
  shape.ranks = ranks;
  return make_schedule(find_algorithm(collective, algorithm), shape);
}

std::string fault_of(const Schedule& schedule) {
  try {
    verify(schedule, Placement::kOutOfPlace);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Round& steps(Schedule& schedule, int rank, int round) {
  return schedule.programs[static_cast<std::size_t>(rank)].rounds[static_cast<std::size_t>(round)];
}

// Every step of every rank in turn is changed by `mutate`; all of the changed schedules must fail.
template <class Mutate>
void expect_all_caught(Mutate mutate) {
  for (Collective collective : kScheduledCollectives) {
    for (const Algorithm& algorithm : algorithms(collective)) {
      const Schedule sound = make(collective, algorithm.name, 6);
      for (int rank = 0; rank < 6; ++rank) {
        for (int round = 0; round < std::ssize(sound.programs[0].rounds); ++round) {
          const int count = static_cast<int>(sound.programs[static_cast<std::size_t>(rank)]
                                                 .rounds[static_cast<std::size_t>(round)]
                                                 .size());
          for (int step = 0; step < count; ++step) {
            Schedule broken = sound;
            if (!mutate(steps(broken, rank, round), step)) continue;
            EXPECT_NE(fault_of(broken), "")
                << algorithm.name << " rank " << rank << " round " << round << " step " << step;
          }
        }
      }
    }
  }
}

TEST(Verifier, CatchesAnyStepThatIsDropped) {
  expect_all_caught([](Round& round, int step) {
    round.erase(round.begin() + step);
    return true;
  });
}

TEST(Verifier, CatchesAnyStepThatIsDoneTwice) {
  expect_all_caught([](Round& round, int step) {
    const Step copy = round[static_cast<std::size_t>(step)];
    if (copy.kind == StepKind::kCopy) return false;  // harmless
    round.insert(round.begin() + step, copy);
    return true;
  });
}

TEST(Verifier, CatchesAnyWrongPeer) {
  expect_all_caught([](Round& round, int step) {
    Step& wrong = round[static_cast<std::size_t>(step)];
    if (wrong.peer < 0) return false;
    wrong.peer = (wrong.peer + 1) % 6;
    return true;
  });
}

TEST(Verifier, CatchesAnyReductionThatOnlyReceives) {
  expect_all_caught([](Round& round, int step) {
    Step& wrong = round[static_cast<std::size_t>(step)];
    if (wrong.kind != StepKind::kReceiveReduce) return false;
    wrong.kind = StepKind::kReceive;
    return true;
  });
}

TEST(Verifier, CatchesAnyRegionThatIsOneTooLong) {
  expect_all_caught([](Round& round, int step) {
    Step& wrong = round[static_cast<std::size_t>(step)];
    ++(wrong.kind == StepKind::kSend ? wrong.source : wrong.target).count;
    return true;
  });
}

TEST(Verifier, CatchesAnyWriteToInput) {
  expect_all_caught([](Round& round, int step) {
    Step& wrong = round[static_cast<std::size_t>(step)];
    if (wrong.kind == StepKind::kSend) return false;
    wrong.target.space = Space::kInput;
    return true;
  });
}

TEST(Verifier, NamesRankRoundAndStep) {
  Schedule ring = make(Collective::kAllReduce, "ring", 4);
  steps(ring, 2, 1)[1].source.first = 0;
  EXPECT_THAT(fault_of(ring), AllOf(HasSubstr("all_reduce by ring"), HasSubstr("rank 2, round 1"),
                                    HasSubstr("step 1"), HasSubstr("mixed")));
}

TEST(Verifier, SaysWhatIsWrong) {
  Schedule naive = make(Collective::kAllReduce, "naive", 3);
  steps(naive, 0, 0)
      .push_back({StepKind::kReduce, -1, {Space::kInput, 0, 1}, {Space::kScratch, 0, 1}});
  EXPECT_THAT(fault_of(naive), HasSubstr("rank 0's contribution to chunk 0 is counted twice"));

  Schedule late = make(Collective::kAllReduce, "ring", 3);
  steps(late, 1, 0)[0].source.space = Space::kOutput;
  EXPECT_THAT(fault_of(late), HasSubstr("never written"));

  Schedule unheard = make(Collective::kBroadcast, "flat", 3);
  steps(unheard, 2, 0).clear();
  EXPECT_THAT(fault_of(unheard), HasSubstr("rank 2 does not receive it in this round"));

  Schedule unsent = make(Collective::kBroadcast, "flat", 3);
  steps(unsent, 0, 0).erase(steps(unsent, 0, 0).begin());
  EXPECT_THAT(fault_of(unsent), HasSubstr("rank 0 sends nothing"));

  Schedule twice = make(Collective::kBroadcast, "flat", 3);
  steps(twice, 0, 0)[1].peer = 1;
  EXPECT_THAT(fault_of(twice), HasSubstr("a second message to rank 1 in one round"));

  Schedule missing = make(Collective::kAllReduce, "server", 2);
  for (Program& program : missing.programs) program.rounds.pop_back();
  EXPECT_THAT(fault_of(missing), HasSubstr("output[0] of rank 1 was never written"));

  Schedule partial = make(Collective::kReduce, "flat", 3);
  steps(partial, 1, 0).clear();
  steps(partial, 0, 0)[0].kind = StepKind::kCopy;
  EXPECT_THAT(fault_of(partial), HasSubstr("lacks the contribution of rank 1"));

  Schedule uneven = make(Collective::kAllReduce, "ring", 3);
  uneven.programs[2].rounds.pop_back();
  EXPECT_THAT(fault_of(uneven), HasSubstr("rank 2 has 3 rounds where rank 0 has 4"));

  Schedule small = make(Collective::kScatter, "binomial", 4);
  small.programs[2].scratch[0] = 0;
  EXPECT_THAT(fault_of(small), HasSubstr("does not fit"));

  Schedule self = make(Collective::kAllGather, "direct", 2);
  steps(self, 0, 0)[0].peer = 0;
  EXPECT_THAT(fault_of(self), HasSubstr("rank 0 is not a peer of rank 0"));
}

// Sound out of place, wrong in place: the first message overwrites the input that is needed later.
TEST(Verifier, CatchesWhatOnlyFailsInPlace) {
  Schedule pair = make(Collective::kAllReduce, "naive", 2);
  for (int rank : {0, 1}) {
    pair.programs[static_cast<std::size_t>(rank)].rounds = {
        {{StepKind::kSend, 1 - rank, {Space::kInput, 0, 1}, {}},
         {StepKind::kReceive, 1 - rank, {}, {Space::kOutput, 0, 1}},
         {StepKind::kReduce, -1, {Space::kInput, 0, 1}, {Space::kOutput, 0, 1}}}};
  }
  EXPECT_NO_THROW(verify(pair, Placement::kOutOfPlace));
  EXPECT_THROW(verify(pair, Placement::kInPlace), Error);
}

TEST(Registry, NamesTheNearestAlgorithm) {
  try {
    find_algorithm(Collective::kAllReduce, "rign");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("did you mean ring?"), HasSubstr("rabenseifner")));
  }
}

TEST(Registry, HasSchedulesForABarrier) {
  EXPECT_EQ(algorithms(Collective::kBarrier).data(), algorithms(Collective::kAllReduce).data());
  EXPECT_TRUE(algorithms(Collective::kSend).empty());
}

TEST(MakeSchedule, RefusesShapesThatMakeNoSense) {
  const Algorithm& torus = find_algorithm(Collective::kAllReduce, "torus_2d");
  Shape shape;
  shape.ranks = 12;
  shape.grid = {5, 2};
  try {
    make_schedule(torus, shape);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("12 ranks, like 3x4"), HasSubstr("5x2 does not")));
  }
  shape.grid = {};
  shape.root = 12;
  EXPECT_THROW(make_schedule(torus, shape), Error);
  shape.root = 0;
  shape.machines = {0, 1};
  EXPECT_THROW(make_schedule(torus, shape), Error);
  shape.machines = {};
  shape.ranks = 0;
  EXPECT_THROW(make_schedule(torus, shape), Error);
}

}  // namespace
}  // namespace lockstep::schedule
