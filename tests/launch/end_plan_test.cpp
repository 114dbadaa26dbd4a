#include "lockstep/launch/end_plan.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "lockstep/launch/exit_status.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

const Deadline kStart = Deadline(1h);

TEST(EndPlan, AsksThenInsists) {
  EndPlan plan(5s);
  EXPECT_EQ(plan.due(), kNoDeadline);
  plan.start(kStart);
  plan.start(kStart + 3s);  // a second failure does not prolong it
  EXPECT_EQ(plan.due(), kStart + 5s);
  EXPECT_EQ(plan.take_due_signal(kStart + 4999ms), std::nullopt);
  EXPECT_EQ(plan.take_due_signal(kStart + 5s), SIGTERM);
  EXPECT_EQ(plan.take_due_signal(kStart + 5s), std::nullopt);
  EXPECT_EQ(plan.take_due_signal(kStart + 10s), SIGKILL);
  EXPECT_EQ(plan.due(), kNoDeadline);
}

TEST(EndPlan, CanBeCutShort) {
  EndPlan plan(1h);
  plan.start(kStart);
  plan.kill_now(kStart + 1s);
  EXPECT_EQ(plan.take_due_signal(kStart + 1s), SIGKILL);
  EXPECT_EQ(plan.take_due_signal(kStart + 2h), std::nullopt);
}

TEST(ExitStatus, SpeaksLikeAShell) {
  const ExitStatus exited{W_EXITCODE(3, 0)};
  EXPECT_EQ(exited.code(), 3);
  EXPECT_EQ(exited.describe(), "exited with code 3");
  const ExitStatus killed{W_EXITCODE(0, SIGKILL)};
  EXPECT_EQ(killed.code(), 137);
  EXPECT_EQ(killed.describe(), "was killed by SIGKILL");
  EXPECT_TRUE(ExitStatus{0}.is_success());
  EXPECT_EQ(signal_name(40), "signal 40");
}

}  // namespace
}  // namespace lockstep
