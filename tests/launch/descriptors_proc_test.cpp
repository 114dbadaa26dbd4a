// Jobs with more connections than the soft limit of descriptors, and than the hard one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/shell.h"
#include "tests/paths.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

// `count` ranks over TCP that agree on some collectives, under a limit set by the shell.
Outcome launch_with(const std::string& limit, int count, const std::string& transport = "tcp") {
  return shell(limit + "; LOCKSTEP_COMM_TRANSPORT=" + transport +
               " LOCKSTEP_COMM_MEASURE=false LOCKSTEP_COMM_TIMEOUT=60s timeout 120 " +
               in_build("lockstep") + " launch --no-prefix -n " + std::to_string(count) + " -- " +
               in_build("tests/rank_program") + " agree 2>&1");
}

// Thirty connections to 15 others, and what else a process has open.
TEST(Descriptors, TheSoftLimitIsRaisedToTheHardOne) {
  const Outcome outcome = launch_with("ulimit -Sn 40", 16);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_EQ(outcome.text, "");
}

TEST(Descriptors, WhatTheHardLimitCannotHoldIsRefusedAtTheStart) {
  const Outcome launcher = launch_with("ulimit -n 150", 32);
  EXPECT_NE(launcher.exit_code, 0);
  EXPECT_THAT(launcher.text, HasSubstr("the launcher needs up to"));
  EXPECT_THAT(launcher.text, HasSubstr("open descriptors, and a process may have 150 here"));
  const Outcome ranks = launch_with("ulimit -n 200", 32);
  EXPECT_NE(ranks.exit_code, 0);
  EXPECT_THAT(ranks.text, HasSubstr(" of 32 needs up to"));
  EXPECT_THAT(ranks.text, HasSubstr("open descriptors, and a process may have 200 here"));
}

TEST(Descriptors, RanksHaveTheLimitThatTheirLauncherWasStartedWith) {
  const Outcome outcome = shell("ulimit -Sn 200; " + in_build("lockstep") +
                                " launch --no-prefix -n 1 -- sh -c 'ulimit -Sn'");
  EXPECT_EQ(outcome.text, "200\n");
}

}  // namespace
}  // namespace lockstep::testing
