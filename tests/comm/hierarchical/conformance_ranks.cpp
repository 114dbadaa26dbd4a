// Runs the conformance suite on hierarchical communicators of the host: ranks are threads on every
// grid of emulated nodes that they can be, and on uneven nodes where there is none.
#include <algorithm>
#include <vector>

#include "tests/comm/hierarchical/host_levels.h"
#include "tests/comm/ranks.h"

namespace lockstep::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMostRanksOfNodes = 5;
#else
constexpr int kMostRanksOfNodes = 9;
#endif

std::vector<int> numbers_of_nodes(int ranks) {
  std::vector<int> numbers;
  for (int nodes = 2; nodes * 2 <= ranks; ++nodes) {
    if (ranks % nodes == 0) numbers.push_back(nodes);
  }
  return numbers.empty() ? std::vector<int>{std::min(ranks, 2)} : numbers;
}

}  // namespace

bool ranks_are_processes() { return false; }

int most_ranks() { return kMostRanksOfNodes; }

void on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  for (const int nodes : numbers_of_nodes(ranks)) {
    on_emulated_nodes(ranks, nodes, [&](Communicator& world) {
      const auto group = host_levels(world.split(0, world.rank()), {.staging_bytes = 64 << 10});
      body(*group);
    });
  }
}

void on_every_size(const std::function<void(Communicator&)>& body) {
  for (int ranks = 1; ranks <= most_ranks(); ++ranks) on_ranks(ranks, body);
}

}  // namespace lockstep::testing
