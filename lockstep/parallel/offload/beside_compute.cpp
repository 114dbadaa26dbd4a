#include "lockstep/parallel/offload/beside_compute.h"

#include <algorithm>

#include "lockstep/base/system/cpu_set.h"

namespace lockstep::parallel {

std::vector<std::size_t> needed_blocks(const nn::MemoryPlan& plan) {
  const std::size_t blocks = plan.flat.blocks();
  std::vector<std::size_t> needed(blocks);
  std::size_t most = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    most = std::max(most, block + 1);
    for (std::size_t p = 0; p < plan.specs[block].parameters.size(); ++p) {
      const nn::FlatParameter* const place = plan.flat.place(block, p);
      if (place != nullptr) most = std::max(most, place->block + 1);
    }
    for (const nn::Gather& gather : plan.gathers) {
      if (gather.starts == static_cast<int>(block)) most = std::max(most, gather.unit + 1);
    }
    needed[block] = block + 1 == blocks ? blocks : most;
  }
  return needed;
}

int update_threads(Device device) {
  return device == Device{} ? 1 : std::max(1, CpuSet::of_this_thread().count() - 1);
}

}  // namespace lockstep::parallel
