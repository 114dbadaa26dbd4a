// A communicator over device memory that tests use as one over their own memory: data is copied to
// the device before a call and back after it. Symmetric memory has a copy on the host.
#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_communicator.h"

namespace lockstep::testing {

std::unique_ptr<Communicator> through_device(std::unique_ptr<Communicator> host,
                                             const DeviceCommunicatorOptions& options);

}  // namespace lockstep::testing
