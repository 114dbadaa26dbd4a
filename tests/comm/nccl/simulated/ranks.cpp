// Runs the conformance suite on comm/nccl without a GPU: CUDA and NCCL are simulated, ranks are
// threads. LOCKSTEP_TEST_DEVICE_BACKEND is that of tests/comm/ranks.h. With `hierarchical` ranks
// are on emulated nodes: on every grid that they can be, and on uneven ones where there is none.
#include "tests/comm/ranks.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "lockstep/comm/native/threads.h"
#include "lockstep/comm/nccl/communicator.h"
#include "lockstep/comm/nccl/levels.h"
#include "tests/comm/nccl/simulated/simulated_group.h"
#include "tests/comm/nccl/simulated/stuck_rank.h"
#include "tests/paths.h"

namespace lockstep {

std::atomic<int> nccl::stuck_rank = nccl::kNoRank;

namespace testing {
namespace {

void set_library() {
  ::setenv(nccl::kFileVariable, in_build("tests/libsimulated_nccl.so").c_str(), 1);
}

std::string_view wanted_backend() {
  const char* const backend = std::getenv("LOCKSTEP_TEST_DEVICE_BACKEND");
  return backend == nullptr ? "nccl" : backend;
}

bool is_hierarchical() { return wanted_backend().starts_with("hierarchical"); }

// Of the CPU: its memory is that of the simulated GPU.
DeviceCommunicatorOptions simulated_options() {
  return {.device = {},
          .backend = is_hierarchical() ? DeviceBackend::kHierarchical : DeviceBackend::kNccl,
          .tree_order = wanted_backend().ends_with("-tree")};
}

// The numbers of nodes to try.
std::vector<int> numbers_of_nodes(int ranks) {
  if (!is_hierarchical() || ranks == 1) return {1};
  std::vector<int> numbers;
  for (int nodes = 2; nodes * 2 <= ranks; ++nodes) {
    if (ranks % nodes == 0) numbers.push_back(nodes);
  }
  return numbers.empty() ? std::vector<int>{2} : numbers;
}

}  // namespace

std::unique_ptr<Communicator> simulated_group(std::unique_ptr<Communicator> host,
                                              const DeviceCommunicatorOptions& options) {
  if (device_backend_for(options.backend, host->machines()) != DeviceBackend::kHierarchical) {
    return std::make_unique<nccl::NcclCommunicator>(std::move(host), options);
  }
  const auto inside = [options](std::unique_ptr<Communicator> node) {
    if (!options.tree_order) return node;
    return std::unique_ptr<Communicator>(
        std::make_unique<nccl::NcclCommunicator>(std::move(node), options));
  };
  const auto part = [options](std::unique_ptr<Communicator> ranks) {
    return simulated_group(std::move(ranks), options);
  };
  return nccl::make_levels(std::move(host), options, {.inside = inside, .part = part});
}

void on_nodes(int ranks, int nodes, const std::function<void(Communicator&)>& body) {
  set_library();
  CommOptions options;
  options.emulated_nodes = nodes;
  options.measure = false;
  options.cache_dir.clear();
  run_threads(ranks, body, options);
}

bool ranks_are_processes() { return false; }

int most_ranks() {
  if (!is_hierarchical()) return 5;
  return wanted_backend().ends_with("-tree") ? 6 : 9;
}

void on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  for (const int nodes : numbers_of_nodes(ranks)) {
    on_nodes(ranks, nodes, [&](Communicator& world) {
      const auto group = simulated_group(world.split(0, world.rank()), simulated_options());
      body(*group);
    });
  }
}

void on_every_size(const std::function<void(Communicator&)>& body) {
  for (int ranks = 1; ranks <= most_ranks(); ++ranks) on_ranks(ranks, body);
}

}  // namespace testing
}  // namespace lockstep
