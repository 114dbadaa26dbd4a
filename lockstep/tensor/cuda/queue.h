// Streams of a GPU: a task runs at once on the calling thread and queues its work on a CUDA stream.
#pragma once

#include <memory>

#include "lockstep/tensor/stream.h"

namespace lockstep::cuda {

std::unique_ptr<Stream::Queue> make_queue(int device);

}  // namespace lockstep::cuda
