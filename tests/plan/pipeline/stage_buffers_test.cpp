// Buffers of pipeline stages: as many as the verifier's stash says, and never two users at once.
#include "lockstep/plan/pipeline/stage_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <algorithm>

#include <map>
#include <tuple>
#include <vector>

#include "lockstep/plan/pipeline/verify.h"

namespace lockstep::plan {
namespace {

constexpr std::string_view kKindsWithBuffers[] = {"sequential",  "gpipe", "1f1b",
                                                  "interleaved", "zb_h1", "zb_h2"};

StepSchedule scheduled(std::string_view kind, int stages, int micro_batches, int chunks = 1) {
  return make_step_schedule(find_pipeline_kind(kind),
                            {.stages = stages, .micro_batches = micro_batches, .chunks = chunks});
}

int slots_of(const StageBuffers& buffers) {
  int slots = 0;
  for (const BufferCounts& counts : buffers.chunks) slots += counts.slots;
  return slots;
}

TEST(StageBuffers, HoldsAsManyMicroBatchesAsTheVerifierCounts) {
  for (const std::string_view kind : kKindsWithBuffers) {
    if (kind == "interleaved") continue;   // chunks are full at different times
    if (kind.starts_with("zb")) continue;  // slots are free when weight inputs are copied
    for (int stages = 1; stages <= 6; ++stages) {
      for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
        const StepSchedule schedule = scheduled(kind, stages, micro_batches);
        const StepCounts counts = verify(schedule);
        for (int stage = 0; stage < stages; ++stage) {
          EXPECT_EQ(slots_of(stage_buffers(schedule, stage)),
                    counts.stash[static_cast<std::size_t>(stage)])
              << kind << ", stage " << stage << " of " << stages << ", " << micro_batches;
        }
      }
    }
  }
}

TEST(StageBuffers, GPipeHoldsAllAndOneFOneBAsManyAsStagesFollow) {
  const StepSchedule gpipe = scheduled("gpipe", 4, 8);
  const StepSchedule one_f_one_b = scheduled("1f1b", 4, 8);
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(slots_of(stage_buffers(gpipe, stage)), 8);
    EXPECT_EQ(slots_of(stage_buffers(one_f_one_b, stage)), 4 - stage);
  }
}

// Slices share the buffers of their micro-batch, which live as long as those of GPipe.
TEST(StageBuffers, SlicesHaveTheBuffersOfWholeMicroBatches) {
  for (const int slices : {2, 3, 5}) {
    const StepSchedule sliced = make_step_schedule(
        find_pipeline_kind("terapipe"), {.stages = 4, .micro_batches = 3, .slices = slices});
    const StepSchedule whole = scheduled("gpipe", 4, 3);
    for (int stage = 0; stage < 4; ++stage) {
      const StageBuffers buffers = stage_buffers(sliced, stage);
      const StageBuffers expected = stage_buffers(whole, stage);
      EXPECT_EQ(slots_of(buffers), 3);
      EXPECT_EQ(buffers.chunks[0].inputs, expected.chunks[0].inputs) << stage;
      // A buffer is free when the last slice of its micro-batch has left.
      EXPECT_LE(buffers.chunks[0].outputs, 2);
      EXPECT_LE(buffers.chunks[0].input_gradients, 2);
      EXPECT_FALSE(buffers.one_at_a_time());
    }
  }
  const StepSchedule one = make_step_schedule(find_pipeline_kind("terapipe"),
                                              {.stages = 1, .micro_batches = 1, .slices = 2});
  EXPECT_FALSE(stage_buffers(one, 0).one_at_a_time()) << "what a slice keeps, the next one reads";
}

// What awaits its weight gradient is copied, and frees its slot.
TEST(StageBuffers, ZeroBubbleHoldsWeightInputsInsteadOfSlots) {
  for (const std::string_view kind : {"zb_h1", "zb_h2"}) {
    const StepSchedule schedule = scheduled(kind, 4, 12);
    const StepCounts counts = verify(schedule);
    for (std::size_t stage = 0; stage < 4; ++stage) {
      const BufferCounts pools = stage_buffers(schedule, static_cast<int>(stage)).chunks[0];
      EXPECT_LE(pools.slots, counts.stash[stage]) << kind << " " << stage;
      // One more than the verifier counts between two computations: a weight gradient is computed
      // while the next input gradient has its copies, or the reverse.
      EXPECT_GE(pools.weight_inputs, counts.awaiting_weight[stage]) << kind << " " << stage;
      EXPECT_LE(pools.weight_inputs, counts.awaiting_weight[stage] + 1) << kind << " " << stage;
    }
  }
}

TEST(StageBuffers, OneStageHasOneSlotAndNoMessages) {
  const StageBuffers buffers = stage_buffers(scheduled("sequential", 1, 5), 0);
  ASSERT_EQ(buffers.chunks.size(), 1u);
  EXPECT_EQ(buffers.chunks[0], (BufferCounts{.slots = 1}));
  EXPECT_TRUE(buffers.one_at_a_time());
}

// Walks through a stage's list with one owner per buffer: a receive takes its buffer when it may be
// posted, a forward its slot and output, and so on.
class Walk {
 public:
  Walk(const StepSchedule& schedule, int stage)
      : actions_(schedule.stages[static_cast<std::size_t>(stage)]),
        buffers_(stage_buffers(schedule, stage)) {}

  void run() {
    // The messages behind a computation are posted before it begins.
    std::size_t posted = 0;
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      if (is_message(actions_[i].kind)) continue;
      std::size_t next = i + 1;
      while (next < actions_.size() && is_message(actions_[next].kind)) ++next;
      for (; posted < next; ++posted) post(actions_[posted]);
      compute(actions_[i]);
    }
  }

 private:
  BufferCounts use_of(const Action& action) const {
    return buffers_
        .uses[static_cast<std::size_t>(action.chunk)][static_cast<std::size_t>(action.micro_batch)];
  }
  void take(std::string_view pool, const Action& action, int index) {
    const auto [owner, taken] =
        owners_.try_emplace({std::string(pool), action.chunk, index}, action.micro_batch);
    EXPECT_TRUE(taken) << pool << " " << index << " of chunk " << action.chunk << " belongs to "
                       << owner->second << " when " << action.micro_batch << " takes it";
  }
  void leave(std::string_view pool, const Action& action, int index) {
    const auto found = owners_.find({std::string(pool), action.chunk, index});
    if (found == owners_.end()) return;  // the ends of the model have none
    EXPECT_EQ(found->second, action.micro_batch) << pool;
    owners_.erase(found);
  }
  void post(const Action& action) {
    if (action.kind == ActionKind::kReceiveActivation) {
      take("input", action, use_of(action).inputs);
    }
    if (action.kind == ActionKind::kReceiveGradient) {
      take("gradient", action, use_of(action).gradients);
    }
  }
  void compute(const Action& action) {
    if (action.kind == ActionKind::kForward) take("slot", action, use_of(action).slots);
    if (action.kind == ActionKind::kBackwardInput) {
      take("weight inputs", action, use_of(action).weight_inputs);
    }
    if (action.kind == ActionKind::kBackwardWeight) {
      leave("weight inputs", action, use_of(action).weight_inputs);
    }
    if (action.kind != ActionKind::kBackward && action.kind != ActionKind::kBackwardInput) return;
    leave("slot", action, use_of(action).slots);
    leave("input", action, use_of(action).inputs);
    leave("gradient", action, use_of(action).gradients);
  }

  std::vector<Action> actions_;
  StageBuffers buffers_;
  std::map<std::tuple<std::string, int, int>, int> owners_;
};

TEST(StageBuffers, NeverHaveTwoUsersAtOnce) {
  for (const std::string_view kind : kKindsWithBuffers) {
    for (int stages = 1; stages <= 5; ++stages) {
      for (int micro_batches = 1; micro_batches <= 8; ++micro_batches) {
        for (int chunks = 1; chunks <= (kind == "interleaved" && stages > 1 ? 3 : 1); ++chunks) {
          const StepSchedule schedule = scheduled(kind, stages, micro_batches, chunks);
          for (int stage = 0; stage < stages; ++stage) {
            SCOPED_TRACE(
                fmt::format("{} {}/{} m{} v{}", kind, stage, stages, micro_batches, chunks));
            Walk(schedule, stage).run();
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::plan
