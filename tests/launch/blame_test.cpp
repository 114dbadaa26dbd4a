#include "lockstep/launch/blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Blame, IsReadAsItIsWritten) {
  EXPECT_EQ(blame_line(std::vector<int>{3}), "  at fault: rank 3");
  EXPECT_EQ(blame_line(std::vector<int>{0, 12}), "  at fault: ranks 0, 12");
  EXPECT_THAT(parse_blame(blame_line(std::vector<int>{3})), ElementsAre(3));
  EXPECT_THAT(parse_blame(blame_line(std::vector<int>{0, 12})), ElementsAre(0, 12));
}

TEST(Blame, IsNoOtherLine) {
  for (const char* line : {"", "at fault: rank 3", "  at fault: rank", "  at fault: rank x",
                           "  at fault: rank -1", "  at fault: rank 1 or so"}) {
    EXPECT_THAT(parse_blame(line), IsEmpty()) << line;
  }
}

}  // namespace
}  // namespace lockstep
