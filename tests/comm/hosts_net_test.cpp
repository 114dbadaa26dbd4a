// Ranks of several hosts (tests/launch/hosts.h).
#include "tests/launch/hosts.h"
#include "tests/paths.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::Hosts;

std::string test_program(const std::string& name) { return in_build("tests/") + name; }

constexpr const char* kNoCache =
    "LOCKSTEP_COMM_CACHE_DIR= LOCKSTEP_COMM_TIMEOUT=60s LOCKSTEP_TEST_WORLD=processes";

TEST(Hosts, TwoHostsOfTwoRanksPassTheConformanceSuite) {
  Hosts hosts(2);
  if (!hosts.allowed()) GTEST_SKIP() << "network namespaces need root";
  ASSERT_TRUE(hosts.ready()) << "network namespaces need iproute2 and tc";
  const std::string output =
      hosts.launch(2, test_program("comm_conformance_test") + " --gtest_brief=1", kNoCache);
  EXPECT_NE(output.find("PASSED"), std::string::npos) << output;
}

TEST(Hosts, FourHostsOneOfThemSlowChooseTheHierarchicalPath) {
  Hosts hosts(4);
  hosts.slow_down(3, "40mbit");
  if (!hosts.allowed()) GTEST_SKIP() << "network namespaces need root";
  ASSERT_TRUE(hosts.ready()) << "network namespaces need iproute2 and tc";
  const std::string output = hosts.launch(2, test_program("choice_program"), kNoCache);
  // 8 ranks on 4 nodes; 1 MiB crosses the slow link as seldom as possible.
  EXPECT_NE(output.find("chosen hierarchical"), std::string::npos) << output;
  EXPECT_NE(output.find("correct"), std::string::npos) << output;
}

TEST(Hosts, AForcedHierarchicalAllReduceIsCorrectAcrossHosts) {
  Hosts hosts(2);
  if (!hosts.allowed()) GTEST_SKIP() << "network namespaces need root";
  ASSERT_TRUE(hosts.ready()) << "network namespaces need iproute2 and tc";
  const std::string output =
      hosts.launch(3, test_program("choice_program"),
                   std::string(kNoCache) + " LOCKSTEP_COMM_ALGORITHM_ALL_REDUCE=hierarchical");
  EXPECT_NE(output.find("chosen hierarchical because forced"), std::string::npos) << output;
  EXPECT_NE(output.find("correct"), std::string::npos) << output;
}

}  // namespace
}  // namespace lockstep
