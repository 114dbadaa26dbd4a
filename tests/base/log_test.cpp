#include "lockstep/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override {
    set_log_level(LogLevel::kWarn);
    set_log_rank(-1);
  }
};

TEST_F(LogTest, ShowsTheLevelInForceAndAbove) {
  set_log_level(LogLevel::kInfo);
  CaptureStderr();
  log_debug("quiet {}", 1);
  log_info("loud {}", 2);
  log_error("loudest {}", 3);
  EXPECT_THAT(GetCapturedStderr(), AllOf(HasSubstr("info loud 2\n"), HasSubstr("error loudest 3\n"),
                                         ::testing::Not(HasSubstr("quiet"))));
}

TEST_F(LogTest, SaysTheRankOnceItIsKnown) {
  set_log_rank(3);
  CaptureStderr();
  log_warn("slow link");
  EXPECT_THAT(GetCapturedStderr(), EndsWith("warning rank 3: slow link\n"));
}

TEST_F(LogTest, BracesInArgumentsAreText) {
  CaptureStderr();
  log_warn("{}", "{0} {");
  EXPECT_THAT(GetCapturedStderr(), EndsWith("{0} {\n"));
}

TEST_F(LogTest, TakesTheLevelFromTheEnvironment) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto say_in_a_new_process = [](const char* level) {
    setenv("LOCKSTEP_LOG", level, 1);
    log_info("one");
    log_debug("two");
    std::_Exit(0);
  };
  EXPECT_EXIT(say_in_a_new_process("info"), ::testing::ExitedWithCode(0),
              ::testing::ContainsRegex("info one\n$"));
  EXPECT_EXIT(say_in_a_new_process("loud"), ::testing::ExitedWithCode(0),
              ::testing::ContainsRegex("'loud'; it may be debug, info, warn, error\n$"));
}

}  // namespace
}  // namespace lockstep
