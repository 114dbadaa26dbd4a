#include "lockstep/comm/device_communicator.h"

#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/comm/cuda_module.h"
#include "lockstep/comm/node_grid.h"
#include "lockstep/tensor/cuda_module.h"

namespace lockstep {
namespace {

const char* symbol_of(DeviceBackend backend) {
  switch (backend) {
    case DeviceBackend::kNccl:
      return cuda::kNcclCommunicatorSymbol;
    case DeviceBackend::kHierarchical:
      return cuda::kHierarchicalCommunicatorSymbol;
    default:
      return cuda::kCommunicatorSymbol;
  }
}

}  // namespace

DeviceBackend device_backend_for(DeviceBackend backend, std::span<const int> nodes) {
  if (backend == DeviceBackend::kNative || backend == DeviceBackend::kNccl) return backend;
  const std::optional<NodeGrid> grid = node_grid(nodes);
  if (!grid) return DeviceBackend::kNccl;
  if (grid->nodes == 1) return DeviceBackend::kNative;
  const bool is_hierarchical = grid->places > 1 && grid->places <= kMostNativeRanks;
  return is_hierarchical ? DeviceBackend::kHierarchical : DeviceBackend::kNccl;
}

std::unique_ptr<Communicator> make_device_communicator(std::unique_ptr<Communicator> host,
                                                       const DeviceCommunicatorOptions& options) {
  cuda::module_for(options.device.index);  // throws where it cannot be used
  auto* const factory = cuda::module().function<cuda::CommunicatorFunction>(
      symbol_of(device_backend_for(options.backend, host->machines())));
  return std::unique_ptr<Communicator>(factory(&options, host.release()));
}

std::size_t device_communicator_bytes(DeviceBackend backend, std::span<const int> nodes,
                                      bool is_staged, bool has_messages) {
  const bool is_hierarchical = device_backend_for(backend, nodes) == DeviceBackend::kHierarchical;
  return is_hierarchical ? hierarchical_communicator_bytes()
                         : device_communicator_bytes(is_staged, has_messages);
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
