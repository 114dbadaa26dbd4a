// A communicator over the memory of GPUs of several nodes, in two levels (comm/hierarchical): NCCL
// across nodes and among all ranks, and any communicator inside.
#pragma once

#include <functional>
#include <memory>

#include "lockstep/comm/device_communicator.h"

namespace lockstep::nccl {

using MakeCommunicator =
    std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator> host)>;

struct LevelMakers {
  MakeCommunicator inside;  // of the ranks of a node
  MakeCommunicator part;    // of the ranks of a split
};

// Called by all ranks of `host`, which are a grid of several nodes and places. Where `inside`
// throws at any rank: with DeviceBackend::kAuto NCCL connects all ranks, else Error(kUnsupported)
// is thrown at all of them.
std::unique_ptr<Communicator> make_levels(std::unique_ptr<Communicator> host,
                                          const DeviceCommunicatorOptions& options,
                                          const LevelMakers& make);

}  // namespace lockstep::nccl
