#include "tests/comm/ranks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/comm/native/threads.h"
#include "lockstep/launch/make_world.h"
#include "lockstep/tensor/cuda.h"
#include "tests/comm/through_device.h"

namespace lockstep::testing {

bool ranks_are_processes() {
  const char* world = std::getenv("LOCKSTEP_TEST_WORLD");
  return world != nullptr && std::string_view(world) == "processes";
}

namespace {

// Sanitizers multiply the time of every rank, and find with five what they find with nine.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMostThreads = 5;
#else
constexpr int kMostThreads = 9;
#endif

DeviceCommunicatorOptions options_of(const char* device, int ranks) {
  const char* const given = std::getenv("LOCKSTEP_TEST_DEVICE_BACKEND");
  const std::string_view backend = given == nullptr ? "native" : given;
  constexpr std::pair<std::string_view, DeviceBackend> kBackends[] = {
      {"native", DeviceBackend::kNative},
      {"nccl", DeviceBackend::kNccl},
      {"nccl-tree", DeviceBackend::kNccl},
      {"hierarchical", DeviceBackend::kHierarchical},
      {"hierarchical-tree", DeviceBackend::kHierarchical}};
  const auto* const known =
      std::ranges::find(kBackends, backend, [](const auto& one) { return one.first; });
  if (known == std::end(kBackends)) {
    std::fprintf(stderr,
                 "LOCKSTEP_TEST_DEVICE_BACKEND is %s; it can be native, nccl or hierarchical, the "
                 "last two with -tree\n",
                 given);
    std::_Exit(1);
  }
  // Ranks of all nodes share the GPU.
  return {.device = parse_device(device),
          .backend = known->second,
          .tree_order = backend.ends_with("-tree"),
          .at_once = known->second == DeviceBackend::kHierarchical ? ranks : 0};
}

// LOCKSTEP_TEST_DEVICE: whose memory the data lies in; nullptr: not in that of a device. Without
// that device the test is skipped.
const char* device_of_test() {
  constexpr int kSkipped = 77;
  const char* device = std::getenv("LOCKSTEP_TEST_DEVICE");
  if (device == nullptr) return nullptr;
  if (const std::string why = why_no_cuda(); !why.empty()) {
    std::fprintf(stderr, "SKIPPED: no GPU: %s\n", why.c_str());
    std::_Exit(std::getenv("LOCKSTEP_TEST_NEEDS_GPU") != nullptr ? 1 : kSkipped);
  }
  return device;
}

void run_on_device(Communicator& host, const std::function<void(Communicator&)>& body) {
  const char* const device = device_of_test();
  if (device == nullptr) return body(host);
  const auto wrapped = through_device(host.split(0, host.rank()), options_of(device, host.size()));
  body(*wrapped);
}

Communicator& process_world() {
  device_of_test();  // before ranks wait for each other
  static const std::unique_ptr<Communicator> world = make_world();
  return *world;
}

}  // namespace

int most_ranks() { return ranks_are_processes() ? process_world().size() : kMostThreads; }

void on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  if (!ranks_are_processes()) {
    return run_threads(ranks, [&](Communicator& world) { run_on_device(world, body); });
  }
  Communicator& world = process_world();
  const auto group = world.split(world.rank() < ranks ? 0 : -1, world.rank());
  if (group) run_on_device(*group, body);
  world.barrier();
}

void on_every_size(const std::function<void(Communicator&)>& body) {
  for (int ranks = 1; ranks <= most_ranks(); ++ranks) on_ranks(ranks, body);
}

}  // namespace lockstep::testing
