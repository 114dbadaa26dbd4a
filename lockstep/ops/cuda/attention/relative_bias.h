// Biases of attention by distance from a table of buckets, and the table's gradient, on a GPU.
//
// The host computes the bucket of every distance, as on the CPU. Distances of one bucket follow
// each other, so the kernels' arguments hold where each bucket begins and ends.
#pragma once

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/gpu_limits.h"
#include "lockstep/ops/relative_bias.h"

namespace lockstep::cuda {

// Both throw Error(kUnsupported) where there are more than ops::kMostBuckets.
void run(const Context& context, const ops::RelativeBias& call);
void run(const Context& context, const ops::RelativeBiasBackward& call);

namespace relative_bias {

// The distances of bucket i, by their indices: from begin[i] to before end[i]. Some have none.
struct BucketRanges {
  int begin[ops::kMostBuckets];
  int end[ops::kMostBuckets];
};

void launch_bias(const Context& context, const ops::RelativeBias& call, const BucketRanges& ranges);
void launch_dtable(const Context& context, const ops::RelativeBiasBackward& call,
                   const BucketRanges& ranges);

}  // namespace relative_bias
}  // namespace lockstep::cuda
