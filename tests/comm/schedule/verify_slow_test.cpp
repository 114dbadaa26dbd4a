// The proof of verify_test.cpp for twice as many ranks.
#include <gtest/gtest.h>

#include "lockstep/comm/schedule/verify.h"
#include "tests/comm/schedule/sweep.h"

namespace lockstep::schedule {
namespace {

TEST(EveryLargeSchedule, ComputesItsCollective) {
  for_every_schedule(
      [](const Algorithm& algorithm, const Shape& shape) {
        if (shape.ranks <= kMostRanks) return;
        ASSERT_NO_THROW(verify(make_schedule(algorithm, shape), Placement::kOutOfPlace))
            << describe(algorithm, shape);
        if (algorithm.collective == Collective::kAllToAll) return;
        ASSERT_NO_THROW(verify(make_schedule(algorithm, shape), Placement::kInPlace))
            << describe(algorithm, shape);
      },
      2 * kMostRanks);
}

}  // namespace
}  // namespace lockstep::schedule
