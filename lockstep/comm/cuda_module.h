// The communicators that liblockstep_cuda.so exports; tensor/cuda_module.h has the rest of its
// interface.
#pragma once

#include "lockstep/comm/device_communicator.h"

namespace lockstep::cuda {

// extern "C" in the module. The result belongs to the caller; it throws Error.
inline constexpr char kCommunicatorSymbol[] = "lockstep_cuda_communicator";
inline constexpr char kNcclCommunicatorSymbol[] = "lockstep_nccl_communicator";
inline constexpr char kHierarchicalCommunicatorSymbol[] = "lockstep_hierarchical_communicator";
using CommunicatorFunction = Communicator*(const DeviceCommunicatorOptions*, Communicator* host);

inline constexpr char kNcclInfoSymbol[] = "lockstep_nccl_info";
using NcclInfoFunction = void(NcclInfo*);

}  // namespace lockstep::cuda
