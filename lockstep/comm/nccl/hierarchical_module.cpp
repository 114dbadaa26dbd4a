// Kernels of lockstep inside nodes, NCCL across: what the CUDA module exports.
#include <memory>
#include <utility>

#include "lockstep/comm/cuda/communicator.h"
#include "lockstep/comm/cuda_module.h"
#include "lockstep/comm/nccl/communicator.h"
#include "lockstep/comm/nccl/levels.h"

namespace lockstep::nccl {
namespace {

std::unique_ptr<Communicator> make_hierarchical(std::unique_ptr<Communicator> host,
                                                const DeviceCommunicatorOptions& options);

std::unique_ptr<Communicator> make_for_nodes(std::unique_ptr<Communicator> host,
                                             const DeviceCommunicatorOptions& options) {
  switch (device_backend_for(options.backend, host->machines())) {
    case DeviceBackend::kHierarchical:
      return make_hierarchical(std::move(host), options);
    case DeviceBackend::kNccl:
      return std::make_unique<NcclCommunicator>(std::move(host), options);
    default:
      return std::make_unique<cuda::CudaCommunicator>(std::move(host), options);
  }
}

std::unique_ptr<Communicator> make_hierarchical(std::unique_ptr<Communicator> host,
                                                const DeviceCommunicatorOptions& options) {
  // Memory that only those take who ask for it: two levels have staging memory of their own, and
  // their messages go through the host.
  DeviceCommunicatorOptions inside = options;
  inside.staged = false;
  inside.messages = false;
  DeviceCommunicatorOptions part = options;
  part.messages = false;
  return make_levels(std::move(host), options,
                     {.inside =
                          [inside](std::unique_ptr<Communicator> node) {
                            return std::make_unique<cuda::CudaCommunicator>(std::move(node),
                                                                            inside);
                          },
                      .part =
                          [part](std::unique_ptr<Communicator> ranks) {
                            return make_for_nodes(std::move(ranks), part);
                          }});
}

}  // namespace
}  // namespace lockstep::nccl

extern "C" lockstep::Communicator* lockstep_hierarchical_communicator(
    const lockstep::DeviceCommunicatorOptions* options, lockstep::Communicator* host) {
  return lockstep::nccl::make_hierarchical(std::unique_ptr<lockstep::Communicator>(host), *options)
      .release();
}
