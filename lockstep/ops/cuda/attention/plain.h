// Attention in f32 arithmetic without tensor cores, for every shape and type: what computes f32,
// and whatever no other implementation accepts.
//
// A block of threads owns 64 rows (queries in forward and for dq, keys for dk and dv) and walks
// over the other side 64 at a time. Scores of 64 by 64 are made in registers, 4 by 4 for a thread,
// from pieces of both sides in shared memory; probabilities go to shared memory, where the second
// product reads them. In forward a running maximum and sum of exponentials is kept for every row,
// and the sums made so far are scaled down where the maximum grows, so that no matrix of scores
// ever exists.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::attention {

void run_plain(const Context& context, const ops::Attention& call);
void run_plain(const Context& context, const ops::AttentionBackward& call);

}  // namespace lockstep::cuda::attention
