#include "lockstep/comm/device_communicator.h"

#include "lockstep/comm/cuda/control.h"
#include "lockstep/comm/cuda_module.h"
#include "lockstep/tensor/cuda_module.h"

namespace lockstep {

std::size_t device_communicator_bytes(bool is_staged) {
  return symmetric_device_bytes(sizeof(cuda::Control) + 2 * cuda::kSmallBytes) +
         cuda::kMostAllocations * cuda::kMostRanks * sizeof(void*) +
         (is_staged ? symmetric_device_bytes(kStagingBytes) : 0);
}

std::unique_ptr<Communicator> make_device_communicator(std::unique_ptr<Communicator> host,
                                                       const DeviceCommunicatorOptions& options) {
  cuda::module_for(options.device.index);  // throws where it cannot be used
  auto* const factory =
      cuda::module().function<cuda::CommunicatorFunction>(cuda::kCommunicatorSymbol);
  return std::unique_ptr<Communicator>(factory(&options, host.release()));
}

}  // namespace lockstep
