// Attention in f32 arithmetic without tensor cores, for every shape and type. It runs f32 calls and
// all calls that no other implementation accepts.
//
// A block of threads owns 64 rows (queries in forward and for dq, keys for dk and dv) and walks
// over the other side 64 at a time. It computes scores of 64 by 64 in registers, 4 by 4 per thread,
// from parts of both sides in shared memory. Probabilities go to shared memory, where the second
// product reads them. Forward keeps a running maximum and sum of exponentials for every row, and
// rescales the sums where the maximum grows. So no matrix of scores exists.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::attention {

void run_plain(const Context& context, const ops::Attention& call);
void run_plain(const Context& context, const ops::AttentionBackward& call);

}  // namespace lockstep::cuda::attention
