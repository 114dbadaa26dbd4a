// Communicators over the memory of simulated GPUs: NCCL's, and hierarchical ones.
#pragma once

#include <functional>
#include <memory>

#include "lockstep/comm/device_communicator.h"

namespace lockstep::testing {

// On a grid of nodes with DeviceBackend::kHierarchical or kAuto a hierarchical one, else NCCL's.
// Inside nodes ranks exchange data as threads do, and in the order of a tree by NCCL.
std::unique_ptr<Communicator> simulated_group(std::unique_ptr<Communicator> host,
                                              const DeviceCommunicatorOptions& options);

// Runs the body on threads that are dealt out to emulated nodes, as evenly as possible.
void on_nodes(int ranks, int nodes, const std::function<void(Communicator&)>& body);

}  // namespace lockstep::testing
