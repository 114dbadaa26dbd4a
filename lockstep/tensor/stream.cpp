#include "lockstep/tensor/stream.h"

#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu_queue.h"
#include "lockstep/tensor/cuda.h"

namespace lockstep {
namespace {

std::unique_ptr<Stream::Queue> make_queue(Device device) {
  if (device.kind == DeviceKind::kCuda) return make_cuda_queue(device.index);
  return make_cpu_queue();
}

}  // namespace

void Event::wait() const {
  if (const std::exception_ptr error = await()) std::rethrow_exception(error);
}

Stream::Stream(Device device) : device_(device), queue_(make_queue(device)) {}

}  // namespace lockstep
