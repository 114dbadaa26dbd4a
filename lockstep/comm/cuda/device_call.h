// What communicators over GPU memory ask of a call, and of the ranks that make it.
#pragma once

#include "lockstep/comm/call.h"

namespace lockstep::cuda {

// Throws Error(kInvalidArgument) for an invalid call, and Error(kUnsupported) for reductions of the
// caller and for forced algorithms.
void check_device_call(const Call& call, int rank, int size);

// Of `processes` that share a GPU: logs that they run in turns, unless NVIDIA's multi-process
// service runs.
void warn_of_turns(int processes);

}  // namespace lockstep::cuda
