#include "lockstep/train/run/near_gpu.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::train {
namespace {

// Two sockets of eight CPUs, whose hyperthreads are numbered behind all cores.
const CpuSet kFirst = CpuSet::parse("0-3,8-11");
const CpuSet kSecond = CpuSet::parse("4-7,12-15");
const CpuSet kAll = CpuSet::parse("0-15");

TEST(NearGpu, RanksOfASocketDivideItsCpus) {
  const std::vector<CpuSet> near = {kFirst, kFirst, kSecond, kSecond};
  EXPECT_EQ(share_near(near, kAll, 0), CpuSet::parse("0-3"));
  EXPECT_EQ(share_near(near, kAll, 1), CpuSet::parse("8-11"));
  EXPECT_EQ(share_near(near, kAll, 2), CpuSet::parse("4-7"));
  EXPECT_EQ(share_near(near, kAll, 3), CpuSet::parse("12-15"));
}

TEST(NearGpu, GpusMayBeInAnyOrderAndSocketsUnequal) {
  const std::vector<CpuSet> near = {kSecond, kFirst, kSecond};
  EXPECT_EQ(share_near(near, kAll, 0), CpuSet::parse("4-7"));
  EXPECT_EQ(share_near(near, kAll, 1), kFirst);
  EXPECT_EQ(share_near(near, kAll, 2), CpuSet::parse("12-15"));
}

TEST(NearGpu, CpusThatAreNotAllowedAreNotUsed) {
  const std::vector<CpuSet> near = {kFirst, kSecond};
  EXPECT_EQ(share_near(near, CpuSet::parse("0-5"), 0), CpuSet::parse("0-3"));
  EXPECT_EQ(share_near(near, CpuSet::parse("0-5"), 1), CpuSet::parse("4,5"));
  EXPECT_EQ(share_near(near, CpuSet::parse("0-3"), 1), std::nullopt);
}

TEST(NearGpu, WhereNothingIsKnownNothingIsBound) {
  const std::vector<CpuSet> near(2);
  EXPECT_EQ(share_near(near, kAll, 0), std::nullopt);
}

}  // namespace
}  // namespace lockstep::train
