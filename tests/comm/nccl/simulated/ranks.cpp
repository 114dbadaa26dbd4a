// Runs the conformance suite on comm/nccl without a GPU: CUDA and NCCL are simulated, ranks are
// threads. LOCKSTEP_TEST_DEVICE_BACKEND=nccl-tree sums in the order of a tree.
#include "tests/comm/ranks.h"

#include <cstdlib>
#include <string_view>

#include "lockstep/comm/native/threads.h"
#include "lockstep/comm/nccl/communicator.h"
#include "tests/comm/nccl/simulated/stuck_rank.h"
#include "tests/paths.h"

namespace lockstep {

std::atomic<int> nccl::stuck_rank = nccl::kNoRank;

namespace testing {
namespace {

DeviceCommunicatorOptions simulated_options() {
  ::setenv(nccl::kFileVariable, in_build("tests/libsimulated_nccl.so").c_str(), 1);
  const char* const backend = std::getenv("LOCKSTEP_TEST_DEVICE_BACKEND");
  DeviceCommunicatorOptions options;  // of the CPU: its memory is that of the simulated GPU
  options.tree_order = backend != nullptr && std::string_view(backend) == "nccl-tree";
  return options;
}

}  // namespace

bool ranks_are_processes() { return false; }

int most_ranks() { return 5; }

void on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  static const DeviceCommunicatorOptions kOptions = simulated_options();
  run_threads(ranks, [&](Communicator& world) {
    nccl::NcclCommunicator group(world.split(0, world.rank()), kOptions);
    body(group);
  });
}

void on_every_size(const std::function<void(Communicator&)>& body) {
  for (int ranks = 1; ranks <= most_ranks(); ++ranks) on_ranks(ranks, body);
}

}  // namespace testing
}  // namespace lockstep
