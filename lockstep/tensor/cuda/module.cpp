// The exports of the module for memory and streams; ops/cuda/cuda_ops.cpp exports the operations.
#include <cuda_runtime_api.h>

#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/devices.h"
#include "lockstep/tensor/cuda/memory.h"
#include "lockstep/tensor/cuda/memory_users.h"
#include "lockstep/tensor/cuda/queue.h"
#include "lockstep/tensor/cuda_module.h"

namespace lockstep::cuda {
namespace {

class Interface final : public CudaModule {
 public:
  std::string problem() override { return cuda::devices().problem; }
  std::string problem_of(int index) override { return cuda::problem_of(index); }
  std::vector<GpuInfo> devices() override { return cuda::devices().all; }

  std::size_t free_bytes(int index) override {
    use_device(index);
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking a GPU for its free memory");
    return free;
  }
  std::vector<GpuUser> users(int index) override { return memory_users(index); }
  DeviceMemory& memory(int index) override { return memory_of_gpu(index); }
  std::unique_ptr<Stream::Queue> make_queue(int index) override { return cuda::make_queue(index); }

  std::byte* allocate_pinned(std::size_t bytes) override { return cuda::allocate_pinned(bytes); }
  void free_pinned(std::byte* data) noexcept override { cuda::free_pinned(data); }
  void pin(std::byte* data, std::size_t bytes) override { cuda::pin(data, bytes); }
  void unpin(std::byte* data) noexcept override { cuda::unpin(data); }
};

}  // namespace
}  // namespace lockstep::cuda

extern "C" int lockstep_cuda_version() { return lockstep::cuda::kModuleVersion; }

extern "C" lockstep::CudaModule* lockstep_cuda_interface() {
  static lockstep::cuda::Interface made;
  return &made;
}
