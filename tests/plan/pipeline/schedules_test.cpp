// Every kind of step schedule over many shapes: proven by the verifier, the same as a plain loop,
// and with the bubble, stash and messages of the published formulas.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/plan/pipeline/timetable.h"
#include "lockstep/plan/pipeline/verify.h"
#include "tests/plan/pipeline/interpreter.h"

namespace lockstep::plan {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-9;

const std::vector<StepTimes> kUnevenTimes = {
    {.forward = 1, .backward_input = 1, .backward_weight = 1},
    {.forward = 1, .backward_input = 0.75, .backward_weight = 0.5},
    {.forward = 3, .backward_input = 1, .backward_weight = 0.25},
    {.forward = 0.5, .backward_input = 2, .backward_weight = 1.5},
    {.forward = 1, .backward_input = 1, .backward_weight = 2}};

StepSchedule made(std::string_view kind, const PipelineShape& shape) {
  return make_step_schedule(find_pipeline_kind(kind), shape);
}

std::string named(const StepSchedule& schedule) {
  const PipelineShape& shape = schedule.shape;
  return fmt::format("{}, {} stages, {} micro-batches, {} chunks, {} slices, {} batches",
                     schedule.name, shape.stages, shape.micro_batches, shape.chunks, shape.slices,
                     shape.batches);
}

void for_stages_and_micro_batches(const std::function<void(int stages, int micro_batches)>& check) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) check(stages, micro_batches);
  }
}

// Every kind with every shape of the sweep that it serves.
void for_every_schedule(const std::function<void(const StepSchedule&)>& check) {
  for (const PipelineKind& kind : pipeline_kinds()) {
    int served = 0;
    for_stages_and_micro_batches([&](int stages, int micro_batches) {
      for (int more = 1; more <= 4; ++more) {
        for (PipelineShape shape : {PipelineShape{stages, micro_batches, more, 1, 1},
                                    PipelineShape{stages, micro_batches, 1, more, 1},
                                    PipelineShape{stages, micro_batches, 1, 1, more}}) {
          if (kind.refuses(shape)) continue;
          ++served;
          check(make_step_schedule(kind, shape));
        }
      }
    });
    EXPECT_GE(served, 8 * 16) << kind.name;
  }
}

double bubble_of(const StepSchedule& schedule, const StepTimes& times = {}) {
  return simulate(schedule, times).bubble();
}

TEST(StepSchedules, AreProvenAndMeanThePlainLoop) {
  for_every_schedule([](const StepSchedule& schedule) {
    StepCounts counts;
    ASSERT_NO_THROW(counts = verify(schedule)) << named(schedule);
    const bool late = schedule.name == "pipedream_2bw";
    const auto weights = testing::Interpreter(schedule).run();
    ASSERT_TRUE(weights.has_value()) << named(schedule);
    EXPECT_EQ(*weights, testing::plain_loop(schedule.shape, late ? 1 : 0)) << named(schedule);
    EXPECT_EQ(counts.staleness, late && schedule.shape.batches > 1 ? 1 : 0) << named(schedule);
  });
}

TEST(StepSchedules, SendEveryActivationAndGradientOnce) {
  for_every_schedule([](const StepSchedule& schedule) {
    const PipelineShape& shape = schedule.shape;
    const int borders = shape.stages == 1 ? 0 : shape.virtual_stages() - 1;
    const StepCounts counts = verify(schedule);
    EXPECT_EQ(counts.activation_messages, borders * shape.all_micro_batches() * shape.slices);
    EXPECT_EQ(counts.gradient_messages, counts.activation_messages);
  });
}

// All stages have the same work, in any order.
TEST(StepSchedules, KeepEveryStageBusyForItsMicroBatches) {
  for_every_schedule([](const StepSchedule& schedule) {
    for (const StepTimes& times : kUnevenTimes) {
      const double work = schedule.shape.all_micro_batches() *
                          (times.forward + times.backward_input + times.backward_weight);
      const Timetable table = simulate(schedule, times);
      EXPECT_THAT(table.busy, Each(::testing::DoubleNear(work, 1e-6))) << named(schedule);
      EXPECT_GE(table.bubble(), -kTolerance) << named(schedule);
      EXPECT_LE(table.bubble_without_barrier(), table.bubble() + kTolerance) << named(schedule);
    }
  });
}

TEST(Sequential, LeavesAllStagesButOneIdle) {
  for_stages_and_micro_batches([](int p, int m) {
    for (const StepTimes& times : kUnevenTimes) {
      EXPECT_NEAR(bubble_of(made("sequential", {p, m}), times), p - 1, kTolerance);
    }
    EXPECT_THAT(verify(made("sequential", {p, m})).stash, Each(1));
  });
}

TEST(GPipe, HasABubbleOfStagesOverMicroBatchesAndHoldsAll) {
  for_stages_and_micro_batches([](int p, int m) {
    for (const StepTimes& times : kUnevenTimes) {
      EXPECT_NEAR(bubble_of(made("gpipe", {p, m}), times), (p - 1.0) / m, kTolerance);
    }
    EXPECT_THAT(verify(made("gpipe", {p, m})).stash, Each(m));
  });
}

TEST(OneFOneB, HasTheSameBubbleAndHoldsStagesInsteadOfMicroBatches) {
  for_stages_and_micro_batches([](int p, int m) {
    for (const StepTimes& times : kUnevenTimes) {
      EXPECT_NEAR(bubble_of(made("1f1b", {p, m}), times), (p - 1.0) / m, kTolerance);
    }
    const StepCounts counts = verify(made("1f1b", {p, m}));
    for (int stage = 0; stage < p; ++stage) {
      EXPECT_EQ(counts.stash[static_cast<std::size_t>(stage)], std::min(p - stage, m));
    }
  });
}

// With m < p ranks wait for a micro-batch to come around: (v - 1)(p - m) units more.
TEST(Interleaved, DividesTheBubbleByItsChunksForAnyNumberOfMicroBatches) {
  for_stages_and_micro_batches([](int p, int m) {
    for (int v = 1; v <= 4; ++v) {
      const double units = p - 1 + (v - 1) * std::max(p - m, 0);
      for (const StepTimes& times : kUnevenTimes) {
        EXPECT_NEAR(bubble_of(made("interleaved", {p, m, v}), times), units / (v * m), kTolerance)
            << p << " stages, " << m << " micro-batches, " << v << " chunks";
      }
    }
  });
}

// A stage holds its forwards before the first backward, and one more. With p | m groups are of p.
TEST(Interleaved, HoldsWhatMegatronHoldsAndMoreWithLargerGroups) {
  for (const int p : {2, 3, 4, 8}) {
    for (int m = 3 * p; m <= 5 * p; ++m) {
      const int groups = m / p;
      const int largest = (m + groups - 1) / groups;
      for (int v = 2; v <= 4; ++v) {
        const StepCounts counts = verify(made("interleaved", {p, m, v}));
        for (int stage = 0; stage < p; ++stage) {
          EXPECT_EQ(counts.stash[static_cast<std::size_t>(stage)],
                    2 * (p - 1 - stage) + (v - 1) * largest + 1);
        }
      }
    }
  }
}

// With equal times 1F1B's bubble is 3(p - 1) units; here it is p - 1 when m >= p.
TEST(ZeroBubbleH1, HasAThirdOfTheBubbleWithTheSameMemory) {
  for_stages_and_micro_batches([](int p, int m) {
    const StepSchedule schedule = made("zb_h1", {p, m});
    const double units = p - 1 + std::max(p - m, 0);
    EXPECT_NEAR(bubble_of(schedule), units / (3 * m), kTolerance);
    if (2 * m > p) {
      EXPECT_LE(bubble_of(schedule), bubble_of(made("1f1b", {p, m})) / 2 + kTolerance);
    }
    EXPECT_THAT(verify(schedule).stash, Each(std::min(p, m)));
    for (const StepTimes& times : kUnevenTimes) {
      const auto& [f, b, w, message, slices] = times;
      EXPECT_LE(bubble_of(schedule, times), bubble_of(made("1f1b", {p, m}), times) + kTolerance);
      if (m < p) continue;
      EXPECT_NEAR(bubble_of(schedule, times),
                  (p - 1) * std::max({f, b, f + b - w}) / (m * (f + b + w)), kTolerance);
    }
  });
}

TEST(ZeroBubbleH2, NeverWaitsOnceItStartedWithTwiceTheMemory) {
  for_stages_and_micro_batches([](int p, int m) {
    const StepSchedule schedule = made("zb_h2", {p, m});
    EXPECT_NEAR(simulate(schedule, {}).bubble_without_barrier(),
                std::max(2 * p - 1 - m, 0) / (3.0 * m), kTolerance);
    for (const StepTimes& times : kUnevenTimes) {
      const auto& [f, b, w, message, slices] = times;
      if (m < 2 * p - 1) continue;
      EXPECT_NEAR(simulate(schedule, times).bubble_without_barrier(),
                  (p - 1) * std::max({0.0, b - f, f + b - 2 * w}) / (m * (f + b + w)), kTolerance);
    }
    EXPECT_THAT(verify(schedule).stash, Each(std::min(2 * p - 1, m)));
  });
}

TEST(TeraPipe, DividesTheBubbleByItsSlices) {
  for_stages_and_micro_batches([](int p, int m) {
    for (int slices = 1; slices <= 4; ++slices) {
      for (const StepTimes& times : kUnevenTimes) {
        EXPECT_NEAR(bubble_of(made("terapipe", {p, m, 1, slices}), times), (p - 1.0) / (m * slices),
                    kTolerance);
      }
    }
  });
}

// The bubble is that of one start and one end, however many batches there are.
TEST(PipeDream2Bw, FillsAndEmptiesThePipelineOnce) {
  for (int p = 1; p <= 6; ++p) {
    for (int m = std::max(p - 1, 1); m <= 8; ++m) {
      for (int batches = 1; batches <= 4; ++batches) {
        const StepSchedule schedule = made("pipedream_2bw", {p, m, 1, 1, batches});
        EXPECT_NEAR(bubble_of(schedule), (p - 1.0) / (m * batches), kTolerance);
        const StepCounts counts = verify(schedule);
        EXPECT_EQ(*std::ranges::max_element(counts.stash), std::min(p, m * batches));
      }
    }
  }
}

// Beyond the shapes that are served, the order is wrong: the refusal is no excuse.
TEST(PipeDream2Bw, NeedsThatManyMicroBatches) {
  PipelineKind unchecked = find_pipeline_kind("pipedream_2bw");
  unchecked.refuses = [](const PipelineShape&) { return std::optional<std::string>(); };
  for (int p = 4; p <= 8; ++p) {
    EXPECT_THROW(verify(make_step_schedule(unchecked, {p, p - 2, 1, 1, 3})), Error);
    EXPECT_NO_THROW(verify(make_step_schedule(unchecked, {p, p - 1, 1, 1, 3})));
  }
}

TEST(Timetable, MessagesDelayWhoWaitsForThem) {
  const StepSchedule schedule = made("gpipe", {3, 2});
  // The first micro-batch reaches stage 2 after 2 forwards and 2 messages; the last gradient comes
  // back the same way.
  const Timetable table = simulate(schedule, {.message = 0.25});
  EXPECT_NEAR(table.end, 2 * 3 + 2 * 3 + 4 * 0.25, kTolerance);
  // Messages of one direction travel one after the other.
  // Stage 1 has the second activation 11 after the start, stage 2 has it 6 later; both gradients
  // leave stage 2 after 20 and stage 1 has the second 10 later; stage 0 ends 9 after that.
  EXPECT_NEAR(simulate(schedule, {.message = 5}).end, 39, kTolerance);
}

TEST(StepSchedules, RefuseWhatTheyCannotServe) {
  const auto refusal = [](std::string_view kind, const PipelineShape& shape) {
    try {
      made(kind, shape);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal("1f1b", {4, 8, 2}),
            "schedule 1f1b has one chunk per stage, not 2; interleaved has several");
  EXPECT_EQ(refusal("zb_h1", {4, 8, 1, 2}),
            "schedule zb_h1 keeps micro-batches whole; 2 slices are for terapipe");
  EXPECT_THAT(refusal("gpipe", {4, 8, 1, 1, 2}), HasSubstr("are for pipedream_2bw"));
  EXPECT_THAT(refusal("pipedream_2bw", {8, 4}), HasSubstr("needs 7 micro-batches or more"));
  EXPECT_THAT(refusal("gpipe", {0, 8}), HasSubstr("0 stages; 1 or more are fine"));
  EXPECT_THAT(refusal("gpipe", {4, -1}), HasSubstr("-1 micro-batches"));
  EXPECT_THAT(refusal("gpipe", {1 << 30, 1 << 30}), HasSubstr("schedules have up to 1000000"));
  EXPECT_THAT(refusal("1f1c", {4, 8}), HasSubstr("(did you mean 1f1b?)"));
}

}  // namespace
}  // namespace lockstep::plan
