// Events of CUDA streams as Event.
#pragma once

#include <cuda_runtime_api.h>

#include <exception>

#include "lockstep/tensor/stream.h"

namespace lockstep::cuda {

// An event for all work that `stream` has queued so far, and for the error of work that could not
// be queued.
Event record_event(int device, cudaStream_t stream, std::exception_ptr error = nullptr);

// Makes later work on `stream` start after the event, and returns the event's error as far as it is
// known. The GPU waits for an event of a GPU; the caller waits for an event of the CPU.
std::exception_ptr wait_for_event(cudaStream_t stream, const Event& event);

}  // namespace lockstep::cuda
