#include "lockstep/comm/cuda/device_call.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::cuda {

void check_device_call(const Call& call, int rank, int size) {
  validate(call, rank, size);
  if (reduces(call.kind) && call.op.kind == ReduceOp::kUser) {
    fail(ErrorCode::kUnsupported, "{}: GPUs cannot run the reduction \"{}\" of the caller",
         name(call.kind), call.op.user->name);
  }
  if (!call.algorithm.empty()) {
    fail(ErrorCode::kUnsupported,
         "{} by {}: on GPUs algorithms cannot be chosen; leave it to the communicator",
         name(call.kind), call.algorithm);
  }
}

void warn_of_turns(int processes) {
  if (mps_runs()) return;
  log_warn(
      "{} processes share a GPU, which runs them in turns: communication takes milliseconds. "
      "NVIDIA's multi-process service lets them run together: nvidia-cuda-mps-control -d",
      processes);
}

}  // namespace lockstep::cuda
