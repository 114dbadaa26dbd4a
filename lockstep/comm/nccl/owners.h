// What ranks exchange before NCCL connects them.
#pragma once

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/nccl/library.h"

namespace lockstep::nccl {

// NCCL, if all ranks of `host` have the same version of it and can be connected. Called by all of
// them; throws Error(kUnsupported) at all of them if one cannot.
//
// NCCL refuses ranks of one node that use the same GPU. Processes that share one therefore each get
// a NCCL_HOSTID of their own in their environment, unless it is set: NCCL then takes them for ranks
// of several nodes.
const Library& agreed_library(Communicator& host, int device);

}  // namespace lockstep::nccl
