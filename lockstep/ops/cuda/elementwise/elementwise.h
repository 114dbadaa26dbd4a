// Elementwise operations on a GPU. Each thread loads a few vectors of 16 bytes of every input
// before it uses the first, so that enough loads are in flight to keep the memory busy.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::Activate& call);
void run(const Context& context, const ops::Multiply& call);
void run(const Context& context, const ops::Add& call);
void run(const Context& context, const ops::Drop& call);
void run(const Context& context, const ops::Cast& call);
void run(const Context& context, const ops::Scale& call);
void run(const Context& context, const ops::SoftCap& call);

}  // namespace lockstep::cuda
