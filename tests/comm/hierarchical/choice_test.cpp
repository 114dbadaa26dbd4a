// Which backend serves which nodes, and what it takes.
#include <gtest/gtest.h>

#include "lockstep/comm/device_communicator.h"

namespace lockstep {
namespace {

using enum DeviceBackend;

TEST(DeviceBackendChoice, FollowsTheNodesOfTheRanks) {
  const struct {
    std::vector<int> nodes;
    DeviceBackend wanted;
    DeviceBackend got;
  } cases[] = {
      {{0, 0}, kAuto, kNative},
      {{0, 0}, kHierarchical, kNative},
      {{0, 1}, kAuto, kNccl},
      {{0, 1}, kHierarchical, kNccl},
      {{0, 0, 1, 1}, kAuto, kHierarchical},
      {{0, 0, 1, 1}, kHierarchical, kHierarchical},
      {{0, 0, 0, 1, 1}, kAuto, kNccl},
      {{0, 0, 0, 1, 1}, kHierarchical, kNccl},
      {{0, 1, 0, 1}, kAuto, kNccl},
      {{0, 0, 1, 1}, kNccl, kNccl},
      {{0, 0, 1, 1}, kNative, kNative},
      {{0, 0}, kNccl, kNccl},
  };
  for (const auto& [nodes, wanted, got] : cases) {
    EXPECT_EQ(device_backend_for(wanted, nodes), got)
        << name(wanted) << " on " << ::testing::PrintToString(nodes);
  }
  std::vector<int> large(2 * (kMostNativeRanks + 1), 0);
  std::fill(large.begin() + kMostNativeRanks + 1, large.end(), 1);
  EXPECT_EQ(device_backend_for(kAuto, large), kNccl);
}

TEST(DeviceBackendChoice, DecidesOnTheMemoryOfACommunicator) {
  const std::vector<int> grid{0, 0, 1, 1}, node{0, 0};
  for (const bool is_staged : {false, true}) {
    EXPECT_EQ(device_communicator_bytes(kAuto, grid, is_staged),
              kSignalBytes + kAddressBytes + 2 * kStagingBytes + 2 * kNcclBarrierBytes);
    EXPECT_EQ(device_communicator_bytes(kAuto, node, is_staged, true),
              device_communicator_bytes(is_staged, true));
  }
}

}  // namespace
}  // namespace lockstep
