#include "lockstep/base/error.h"
#include "lockstep/tensor/cuda.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(int index) {
  fail(ErrorCode::kUnsupported, "{} was asked for, but this build has no CUDA side; use cpu",
       name(Device{DeviceKind::kCuda, index}));
}

}  // namespace

DeviceMemory& cuda_memory(int index) { refuse(index); }
std::unique_ptr<Stream::Queue> make_cuda_queue(int index) { refuse(index); }

}  // namespace lockstep
