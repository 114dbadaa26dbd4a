#include "lockstep/train/run/mirror.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "lockstep/train/run/drift_mirror.h"
#include "lockstep/train/run/shard_mirror.h"

namespace lockstep::train {

std::unique_ptr<Mirror> make_mirror(Communicator& world, Trainer& trainer) {
  if (trainer.strategy().in_lockstep()) return std::make_unique<ShardMirror>(world, trainer);
  return std::make_unique<DriftMirror>(world, trainer);
}

// The first ranks of all nodes, then the second ones, and so on.
std::vector<int> mirror_holders(std::span<const int> machines) {
  std::vector<int> places(machines.size());
  std::vector<int> ring(machines.size());
  std::iota(ring.begin(), ring.end(), 0);
  const auto at = [](int worker) { return static_cast<std::size_t>(worker); };
  for (std::size_t i = 0; i < machines.size(); ++i) {
    places[i] = static_cast<int>(std::ranges::count(machines.first(i), machines[i]));
  }
  std::ranges::stable_sort(
      ring, {}, [&](int worker) { return std::pair(places[at(worker)], machines[at(worker)]); });
  std::vector<int> holders(machines.size());
  for (std::size_t i = 0; i < ring.size(); ++i) {
    holders[at(ring[i])] = ring[(i + 1) % ring.size()];
  }
  return holders;
}

void wait_for_all(const std::vector<Work>& works) {
  std::exception_ptr error;
  for (const Work& work : works) {
    try {
      work.wait();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep::train
