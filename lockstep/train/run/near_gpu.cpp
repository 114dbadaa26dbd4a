#include "lockstep/train/run/near_gpu.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "lockstep/launch/variables.h"
#include "lockstep/tensor/cuda.h"

namespace lockstep::train {
namespace {

CpuSet near_gpu(int index) {
  for (const GpuInfo& gpu : cuda_devices()) {
    if (gpu.index == index) return CpuSet::parse(gpu.near_cpus);
  }
  return {};
}

}  // namespace

std::optional<CpuSet> share_near(std::span<const CpuSet> near, const CpuSet& all,
                                 std::size_t rank) {
  const CpuSet mine = near[rank].common(all);
  if (mine.count() == 0) return std::nullopt;
  const auto neighbours = static_cast<int>(std::ranges::count(near, near[rank]));
  const auto before = static_cast<int>(std::ranges::count(near.first(rank), near[rank]));
  return mine.share(before, neighbours).value_or(mine);
}

void stay_near_gpu(const TrainOptions& options, const Communicator* world) {
  const Device device = device_of(options);
  // Ranks that are threads share the process, and emulated nodes the CPUs.
  if (device == Device{} || (world != nullptr && world->backend() == "threads") ||
      options.parallel.comm.emulated_nodes > 1) {
    return;
  }
  const char* const divided = std::getenv(kNodeCpusVariable);
  std::optional<CpuSet> cpus;
  if (divided == nullptr) {
    const CpuSet near = near_gpu(device.index);
    cpus = share_near({&near, 1}, CpuSet::of_this_thread(), 0);
  } else {
    std::vector<CpuSet> near;
    for (int rank = 0; rank < options.node_place.ranks; ++rank) {
      TrainOptions other = options;
      other.node_place.rank = rank;
      near.push_back(near_gpu(device_of(other).index));
    }
    cpus =
        share_near(near, CpuSet::parse(divided), static_cast<std::size_t>(options.node_place.rank));
  }
  if (cpus) bind_process(::getpid(), *cpus);
}

}  // namespace lockstep::train
