// A Stream of the CPU: a thread that calls its tasks in order.
#pragma once

#include <memory>

#include "lockstep/tensor/stream.h"

namespace lockstep {

std::unique_ptr<Stream::Queue> make_cpu_queue();

}  // namespace lockstep
