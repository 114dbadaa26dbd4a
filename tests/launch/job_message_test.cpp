#include "lockstep/launch/job_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using Kind = JobMessage::Kind;

TEST(JobMessages, ComeAsTheyWereSent) {
  JobMessage message{.kind = Kind::kRecover, .generation = 3, .node = 2, .rank = 5};
  message.ranks = {1, 4};
  message.exit_code = 137;
  message.ended_itself = message.blames = message.leave = message.any_kept = true;
  message.time = 1500ms;
  message.master_port = 29500;
  message.job = "abc";
  message.text = "a line\nand \"another\"";
  message.more = "more";
  const auto got = decode_message(encode(message));
  ASSERT_TRUE(got);
  EXPECT_EQ(encode(*got), encode(message));
  EXPECT_EQ(got->text, message.text);
  EXPECT_EQ(got->time, message.time);
  EXPECT_THAT(got->ranks, ElementsAre(1, 4));
  EXPECT_TRUE(got->leave && got->any_kept && got->blames && got->ended_itself);
  const JobMessage plain{.kind = Kind::kBegin};
  EXPECT_EQ(decode_message(encode(plain))->exit_code, 1);
}

TEST(JobMessages, OthersAreNone) {
  for (const char* text : {"", "lost", "done 3", "failed 1 text", "lost {", "lost {\"rank\":\"x\"}",
                           "begin []", "recover 7"}) {
    EXPECT_FALSE(decode_message(text)) << text;
  }
  EXPECT_THROW(decode_facts(1, "2 29500"), Error);
  EXPECT_THROW(decode_facts(1, "{}"), Error);
  EXPECT_EQ(decode_facts(1, encode(NodeFacts{.ranks = 2, .restarts = 2, .job = "a"})).job, "a");
}

}  // namespace
}  // namespace lockstep
