#include "lockstep/comm/device_communicator.h"

#include "lockstep/comm/cuda_module.h"
#include "lockstep/tensor/cuda_module.h"

namespace lockstep {

std::unique_ptr<Communicator> make_device_communicator(std::unique_ptr<Communicator> host,
                                                       const DeviceCommunicatorOptions& options) {
  cuda::module_for(options.device.index);  // throws where it cannot be used
  auto* const factory =
      cuda::module().function<cuda::CommunicatorFunction>(cuda::kCommunicatorSymbol);
  return std::unique_ptr<Communicator>(factory(&options, host.release()));
}

}  // namespace lockstep
