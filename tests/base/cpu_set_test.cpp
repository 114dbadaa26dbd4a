#include "lockstep/base/system/cpu_set.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(CpuSet, SharesAreApartAndOfAlmostEqualSize) {
  const CpuSet all = CpuSet::parse("0,2,3,5,7");
  EXPECT_EQ(all.share(0, 2), CpuSet::parse("0,2"));
  EXPECT_EQ(all.share(1, 2), CpuSet::parse("3,5,7"));
}

TEST(CpuSet, PartsTakeTurnsWhereThereAreFewerCpus) {
  const CpuSet all = CpuSet::parse("4,6");
  EXPECT_EQ(all.share(0, 4), CpuSet::parse("4"));
  EXPECT_EQ(all.share(1, 4), CpuSet::parse("4"));
  EXPECT_EQ(all.share(2, 4), CpuSet::parse("6"));
  EXPECT_EQ(all.share(3, 4), CpuSet::parse("6"));
}

TEST(CpuSet, OnePartHasNoShare) { EXPECT_FALSE(CpuSet::parse("0,1").share(0, 1)); }

TEST(CpuSet, MeetsAnotherThatHasOneOfItsCpus) {
  EXPECT_TRUE(CpuSet::parse("1,64").meets(CpuSet::parse("2,64")));
  EXPECT_FALSE(CpuSet::parse("1,64").meets(CpuSet::parse("2,63")));
  EXPECT_FALSE(CpuSet().meets(CpuSet::parse("2")));
}

TEST(CpuSet, TextComesBackAsTheSameSet) {
  const CpuSet cpus = CpuSet::parse("1,64,1000");
  EXPECT_EQ(cpus.count(), 3);
  EXPECT_EQ(cpus.text(), "1,64,1000");
  EXPECT_EQ(CpuSet::parse("nonsense,-1,99999,4"), CpuSet::parse("4"));
  EXPECT_EQ(CpuSet::parse("0-2,8,10-11"), CpuSet::parse("0,1,2,8,10,11"));
  EXPECT_EQ(CpuSet::parse("5-3,1020-9999").count(), 4);
  EXPECT_GE(CpuSet::of_this_thread().count(), 1);
}

}  // namespace
}  // namespace lockstep
