#include "lockstep/ops/cuda_module.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/cuda_module.h"

namespace lockstep {

std::unique_ptr<Ops> make_cuda_ops(int index) {
  cuda::module_for(index);  // throws where it cannot be used
  auto* const factory = cuda::module().function<cuda::OpsFunction>(cuda::kOpsSymbol);
  return std::unique_ptr<Ops>(factory(index));
}

std::unique_ptr<Ops> make_ops(Device device, int threads) {
  return device.kind == DeviceKind::kCuda ? make_cuda_ops(device.index) : make_cpu_ops(threads);
}

}  // namespace lockstep
