// The verifier of step schedules rejects what is broken: by hand, and by random mutations that an
// interpreter on numbers judges independently.
#include "lockstep/plan/pipeline/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/plan/pipeline/interpreter.h"

namespace lockstep::plan {
namespace {

using ::testing::HasSubstr;

// Why the verifier refuses; empty when it accepts.
std::string rejection(const StepSchedule& schedule) {
  try {
    verify(schedule);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

StepSchedule two_stages(std::vector<Action> first, std::vector<Action> second) {
  return {.name = "by hand",
          .shape = {.stages = 2, .micro_batches = 2},
          .stages = {std::move(first), std::move(second)}};
}

Action act(ActionKind kind, int micro_batch, int peer = -1) {
  return {.kind = kind, .micro_batch = micro_batch, .peer = peer};
}

// 1F1B on two stages with every receive just before it is needed: stage 0 sends its second
// activation while stage 1 sends the first gradient.
TEST(VerifyStep, FindsADeadlockThatBuffersWouldHide) {
  using enum ActionKind;
  std::vector<Action> first = {act(kForward, 0),
                               act(kSendActivation, 0, 1),
                               act(kForward, 1),
                               act(kSendActivation, 1, 1),
                               act(kReceiveGradient, 0, 1),
                               act(kBackward, 0),
                               act(kReceiveGradient, 1, 1),
                               act(kBackward, 1),
                               act(kUpdate, 1)};
  std::vector<Action> second = {act(kReceiveActivation, 0, 0),
                                act(kForward, 0),
                                act(kBackward, 0),
                                act(kSendGradient, 0, 0),
                                act(kReceiveActivation, 1, 0),
                                act(kForward, 1),
                                act(kBackward, 1),
                                act(kSendGradient, 1, 0),
                                act(kUpdate, 1)};
  EXPECT_EQ(rejection(two_stages(first, second)),
            "schedule by hand deadlocks: stage 0 waits in the send of the activation of "
            "micro-batch 1 to stage 1, stage 1 waits in the send of the gradient of micro-batch 0 "
            "to stage 0");
  std::swap(second[3], second[4]);
  EXPECT_EQ(rejection(two_stages(first, second)), "");
  EXPECT_EQ(verify(two_stages(first, second)).stash, (std::vector{2, 1}));
}

TEST(VerifyStep, SaysWhatIsWrong) {
  const StepSchedule good = make_step_schedule(find_pipeline_kind("zb_h1"), {2, 2});
  const auto broken = [&](auto change) {
    StepSchedule schedule = good;
    change(schedule.stages);
    return rejection(schedule);
  };
  using Stages = std::vector<std::vector<Action>>;
  EXPECT_EQ(broken([](Stages&) {}), "");
  EXPECT_THAT(broken([](Stages& s) { s[0].erase(s[0].begin()); }),
              HasSubstr("which is not computed yet"));
  EXPECT_THAT(broken([](Stages& s) { s[0].insert(s[0].begin(), s[0][0]); }),
              HasSubstr("forward of micro-batch 0: it was computed before"));
  EXPECT_THAT(broken([](Stages& s) { s[0].pop_back(); }), HasSubstr("0 updates of 1 batches"));
  EXPECT_THAT(broken([](Stages& s) { s[0][0].micro_batch = 2; }),
              HasSubstr("no such micro-batch, chunk or slice"));
  EXPECT_THAT(broken([](Stages& s) { s[1][0].peer = 1; }), HasSubstr("its neighbour is stage 0"));
  EXPECT_THAT(broken([](Stages& s) { s[1][0].micro_batch = 1; }), HasSubstr("stage 1 is at the"));
  EXPECT_THAT(broken([](Stages& s) { s[1].erase(s[1].begin()); }), HasSubstr("has not arrived"));
  EXPECT_THAT(broken([](Stages& s) { s[0][0].version = 1; }),
              HasSubstr("version 1 of the weights after 0 updates"));
  EXPECT_THAT(broken([](Stages& s) { std::swap(s[0].back(), s[0][s[0].size() - 2]); }),
              HasSubstr("weight gradient"));
  EXPECT_THAT(broken([](Stages& s) { s.pop_back(); }), HasSubstr("actions of 1 stages, not of 2"));
}

class Mutation {
 public:
  explicit Mutation(std::uint64_t seed) : random_(seed) {}

  // Breaks one action; returns how.
  std::string operator()(StepSchedule& schedule) {
    const auto stage = static_cast<std::size_t>(below(schedule.shape.stages));
    auto& actions = schedule.stages[stage];
    const int count = static_cast<int>(actions.size());
    const auto at = static_cast<std::size_t>(below(count));
    switch (below(8)) {
      case 0:
        actions.erase(actions.begin() + static_cast<int>(at));
        return "drop";
      case 1:
        actions.insert(actions.begin() + below(count), Action(actions[at]));
        return "double";
      case 2:
      case 3:
        std::swap(actions[at], actions[static_cast<std::size_t>(below(count))]);
        return "swap";
      case 4:
        std::swap(actions[at], actions[std::min(at + 1, actions.size() - 1)]);
        return "swap";
      case 5: {
        const auto other = static_cast<std::size_t>(below(schedule.shape.stages));
        schedule.stages[other].push_back(actions[at]);
        schedule.stages[stage].erase(schedule.stages[stage].begin() + static_cast<int>(at));
        return other == stage ? "swap" : "move";
      }
      case 6:
        actions[at].kind = static_cast<ActionKind>(below(9));
        return "retarget";
      default:
        retarget(schedule, actions[at]);
        return "retarget";
    }
  }

 private:
  int below(int count) { return static_cast<int>(random_() % static_cast<std::uint64_t>(count)); }

  void retarget(const StepSchedule& schedule, Action& action) {
    const PipelineShape& shape = schedule.shape;
    switch (below(5)) {
      case 0:
        action.micro_batch = below(shape.all_micro_batches() + 1);
        break;
      case 1:
        action.chunk = below(shape.chunks + 1);
        break;
      case 2:
        action.slice = below(shape.slices + 1);
        break;
      case 3:
        action.peer = below(shape.stages + 1) - 1;
        break;
      default:
        action.version = below(shape.batches + 1);
    }
  }

  std::mt19937_64 random_;
};

TEST(VerifyStep, RejectsEveryMutationThatChangesTheResult) {
  const std::vector<std::pair<std::string_view, PipelineShape>> originals = {
      {"sequential", {3, 3}},
      {"gpipe", {4, 3}},
      {"1f1b", {4, 6}},
      {"1f1b", {3, 2}},
      {"interleaved", {3, 4, 2}},
      {"interleaved", {2, 5, 3}},
      {"zb_h1", {4, 5}},
      {"zb_h2", {3, 6}},
      {"terapipe", {3, 2, 1, 3}},
      {"pipedream_2bw", {3, 3, 1, 1, 3}},
      {"pipedream_2bw", {2, 2, 1, 1, 4}}};
  std::map<std::string, int> rejected;
  std::map<std::string, int> accepted;
  Mutation mutate(7);
  for (const auto& [kind, shape] : originals) {
    const StepSchedule original = make_step_schedule(find_pipeline_kind(kind), shape);
    const auto weights = testing::plain_loop(shape, kind == "pipedream_2bw" ? 1 : 0);
    for (int i = 0; i < 2000; ++i) {
      StepSchedule mutant = original;
      const std::string how = mutate(mutant);
      if (mutant.stages == original.stages) continue;
      const bool means_the_same = testing::Interpreter(mutant).run() == weights;
      const std::string why = rejection(mutant);
      ++(why.empty() ? accepted : rejected)[how];
      // A mutant that is accepted gives the same weights.
      EXPECT_TRUE(!why.empty() || means_the_same) << kind << " " << how;
      // Another order of the same actions is refused only when it gives others.
      EXPECT_TRUE(how != "swap" || why.empty() || !means_the_same) << kind << " " << why;
    }
  }
  for (const char* how : {"drop", "double", "move", "retarget"}) {
    EXPECT_GT(rejected[how], 1000) << how;
    EXPECT_EQ(accepted[how], 0) << how;
  }
  EXPECT_GT(rejected["swap"], 1000);
  EXPECT_GT(accepted["swap"], 100);
}

}  // namespace
}  // namespace lockstep::plan
