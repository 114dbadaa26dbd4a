// Parts of batches that follow each other without emptying the pipeline: together they are the
// schedule that the verifier proves, and whether another batch follows may be decided late.
#include "lockstep/plan/pipeline/batch_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lockstep/plan/pipeline/stage_buffers.h"
#include "lockstep/plan/pipeline/verify.h"

namespace lockstep::plan {
namespace {

const PipelineKind& kind() { return find_pipeline_kind("pipedream_2bw"); }

// How many actions, from the first on, have nothing to do with the next batch.
std::size_t actions_before_next(const PipelineShape& shape, const std::vector<Action>& part) {
  const auto next = std::ranges::find_if(
      part, [&](const Action& action) { return action.micro_batch >= shape.micro_batches; });
  return static_cast<std::size_t>(next - part.begin());
}

template <class F>
void for_shapes(F&& f) {
  for (int stages = 1; stages <= 7; ++stages) {
    for (int micro_batches = std::max(stages - 1, 1); micro_batches <= 9; ++micro_batches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << micro_batches);
      f(PipelineShape{.stages = stages, .micro_batches = micro_batches});
    }
  }
}

TEST(BatchPart, PartsAreTheVerifiedScheduleOfAnyNumberOfBatches) {
  for_shapes([](PipelineShape shape) {
    for (const int batches : {1, 2, 3, 6}) {
      shape.batches = batches;
      StepSchedule joined = make_step_schedule(kind(), shape);
      EXPECT_NO_THROW(verify(joined));
      for (int stage = 0; stage < shape.stages; ++stage) {
        std::vector<Action> all;
        for (int batch = 0; batch < batches; ++batch) {
          for (Action action : batch_part(kind(), shape, stage, {batch > 0, batch + 1 < batches})) {
            action.micro_batch += batch * shape.micro_batches;
            action.version = 0;
            all.push_back(action);
          }
        }
        std::vector<Action> expected = joined.stages[static_cast<std::size_t>(stage)];
        for (Action& action : expected) action.version = 0;
        EXPECT_EQ(all, expected) << batches << " batches, stage " << stage;
      }
    }
  });
}

TEST(BatchPart, WhetherABatchIsFollowedChangesNothingBeforeTheNextOne) {
  for_shapes([](const PipelineShape& shape) {
    for (const bool follows : {false, true}) {
      for (int stage = 0; stage < shape.stages; ++stage) {
        const auto open = batch_part(kind(), shape, stage, {follows, true});
        const auto closed = batch_part(kind(), shape, stage, {follows, false});
        const std::size_t same = actions_before_next(shape, open);
        ASSERT_LE(same, closed.size());
        EXPECT_TRUE(std::equal(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(same),
                               closed.begin()));
      }
    }
  });
}

// The forwards of the next batch that a stage computes are as many as stages follow it.
TEST(BatchPart, HasTheForwardsOfTheNextBatchThatFillThePipeline) {
  for_shapes([](const PipelineShape& shape) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      const auto part = batch_part(kind(), shape, stage, {true, true});
      const auto ahead = std::ranges::count_if(part, [&](const Action& action) {
        return action.kind == ActionKind::kForward && action.micro_batch >= shape.micro_batches;
      });
      EXPECT_EQ(ahead, shape.stages - 1 - stage);
    }
  });
}

// One owner for each buffer, over many batches, from the pools of three.
TEST(BatchPart, BuffersOfThreeBatchesServeAnyNumberInTurn) {
  for_shapes([](PipelineShape shape) {
    shape.batches = 3;
    const StepSchedule three = make_step_schedule(kind(), shape);
    shape.batches = 7;
    const StepSchedule seven = make_step_schedule(kind(), shape);
    for (int stage = 0; stage < shape.stages; ++stage) {
      const StageBuffers buffers = stage_buffers(three, stage);
      EXPECT_TRUE(buffers.in_turn);
      EXPECT_EQ(buffers.weight_versions, 2);
      EXPECT_EQ(buffers.chunks, stage_buffers(seven, stage).chunks) << "stage " << stage;
      std::vector<int> owner(static_cast<std::size_t>(buffers.chunks[0].slots), -1);
      for (const Action& action : seven.stages[static_cast<std::size_t>(stage)]) {
        const auto slot = static_cast<std::size_t>(buffers.of(0, action.micro_batch).slots);
        if (action.kind == ActionKind::kForward) {
          EXPECT_EQ(owner[slot], -1) << describe(action);
          owner[slot] = action.micro_batch;
        } else if (action.kind == ActionKind::kBackward) {
          EXPECT_EQ(owner[slot], action.micro_batch) << describe(action);
          owner[slot] = -1;
        }
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::plan
