#include "lockstep/comm/device_communicator.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/comm/cuda_module.h"
#include "lockstep/tensor/cuda_module.h"

namespace lockstep {
namespace {

bool uses_nccl(DeviceBackend backend, const Communicator& host) {
  if (backend != DeviceBackend::kAuto) return backend == DeviceBackend::kNccl;
  const std::vector<int> nodes = host.machines();
  return std::ranges::count(nodes, nodes.front()) != host.size();
}

}  // namespace

std::unique_ptr<Communicator> make_device_communicator(std::unique_ptr<Communicator> host,
                                                       const DeviceCommunicatorOptions& options) {
  cuda::module_for(options.device.index);  // throws where it cannot be used
  auto* const factory = cuda::module().function<cuda::CommunicatorFunction>(
      uses_nccl(options.backend, *host) ? cuda::kNcclCommunicatorSymbol
                                        : cuda::kCommunicatorSymbol);
  return std::unique_ptr<Communicator>(factory(&options, host.release()));
}

NcclInfo nccl_info() {
  NcclInfo info;
  try {
    cuda::module().function<cuda::NcclInfoFunction>(cuda::kNcclInfoSymbol)(&info);
  } catch (const Error& error) {
    info.problem = error.what();
  }
  return info;
}

}  // namespace lockstep
