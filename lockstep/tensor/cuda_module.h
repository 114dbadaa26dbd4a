// The interface between liblockstep_cuda.so and the library.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/module.h"
#include "lockstep/tensor/cuda.h"

namespace lockstep {

// The module's memory and streams. Functions with an index need a GPU whose problem_of(index) is
// empty.
class CudaModule {
 public:
  // Why no GPU, or not this one, can be used; follows "cuda:0 is not available: ". Empty if it can
  // be used.
  virtual std::string problem() = 0;
  virtual std::string problem_of(int index) = 0;

  virtual std::vector<GpuInfo> devices() = 0;
  virtual std::size_t free_bytes(int index) = 0;
  virtual std::vector<GpuUser> users(int index) = 0;
  virtual DeviceMemory& memory(int index) = 0;
  virtual std::unique_ptr<Stream::Queue> make_queue(int index) = 0;

  virtual std::byte* allocate_pinned(std::size_t bytes) = 0;  // throws Error(kSystem)
  virtual void free_pinned(std::byte* data) noexcept = 0;
  virtual void pin(std::byte* data, std::size_t bytes) = 0;  // throws Error(kSystem)
  virtual void unpin(std::byte* data) noexcept = 0;

 protected:
  ~CudaModule() = default;  // lives as long as the process
};

namespace cuda {

// Raised whenever a class or struct that crosses the border changes its layout: CudaModule,
// GpuInfo, DeviceMemory, Stream, Event, Tensor, Communicator and its options, Ops and the
// operations.
inline constexpr int kModuleVersion = 4;

// extern "C" in the module.
inline constexpr char kVersionSymbol[] = "lockstep_cuda_version";
inline constexpr char kInterfaceSymbol[] = "lockstep_cuda_interface";
using InterfaceFunction = CudaModule*();

// Loads the module. Throws Error(kUnsupported) if there is none.
const Module& module();
// The module's interface. Throws Error(kUnsupported) if that GPU cannot be used.
CudaModule& module_for(int index);

}  // namespace cuda
}  // namespace lockstep
