// Threads of a rank run on CPUs near its GPU: of the NUMA node that the GPU is connected to. Copies
// between the two, and the host's part of an offloaded update, need not cross to another node then.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/base/system/cpu_set.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

// The CPUs for `rank` of the ranks of a node, which may use `all`. near[r] are those near the GPU
// of rank r. Ranks with the same ones divide them. Nothing where none of these may be used.
std::optional<CpuSet> share_near(std::span<const CpuSet> near, const CpuSet& all, std::size_t rank);

// Binds this process so where it computes on a GPU. The launcher has divided the CPUs of the node
// by the numbers of ranks (kNodeCpusVariable); without it a process is only kept from CPUs that are
// far.
void stay_near_gpu(const TrainOptions& options, const Communicator* world);

}  // namespace lockstep::train
