// Events of CUDA streams as Event and as Moment.
#pragma once

#include <cuda_runtime_api.h>

#include <exception>

#include "lockstep/tensor/moment.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::cuda {

// An event for all work that `stream` has queued so far, and for the error of work that could not
// be queued.
Event record_event(int device, cudaStream_t stream, std::exception_ptr error = nullptr);

// The moment at which all work queued on `stream` so far is done.
Moment record_moment(int device, cudaStream_t stream);

// Makes work that is queued on `stream` from now on begin after the event, and returns the event's
// error if it is known. The GPU waits for an event of a GPU. The caller waits for an event of the
// CPU, because the GPU cannot.
std::exception_ptr wait_for_event(cudaStream_t stream, const Event& event);

}  // namespace lockstep::cuda
