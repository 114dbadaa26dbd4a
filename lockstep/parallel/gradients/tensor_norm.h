// The global gradient norm of a model that a tensor group divides (nn/tensor_shard.h).
//
// Every rank knows the norm of its own flat buffer. A divided parameter is in it once, with the
// elements of that rank; a replicated one is in the norms of all ranks, and only the first counts
// it.
#pragma once

#include "lockstep/nn/replica/replica.h"

namespace lockstep::parallel {

// The sum of squares of this worker's gradients of replicated parameters: all of them, or its
// shards. Waits for the operations before it.
double replicated_squares(nn::Replica& replica);

// The norm over all ranks of the group, the same on all of them. `own_norm` is that of this rank's
// flat buffer and `replicated` the sum of squares of all replicated parameters. Infinite or NaN if
// a gradient of any rank is.
double norm_over_tensor_group(const nn::Replica& replica, double own_norm, double replicated);

}  // namespace lockstep::parallel
