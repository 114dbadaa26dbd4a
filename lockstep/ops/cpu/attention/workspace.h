// How attention's threads share its scratch memory. Internal to attention.
#pragma once

#include <cstddef>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cpu/attention/kernels.h"

namespace lockstep::cpu {

// Tiles of a strip: enough to amortize widening the keys, but few enough to give all threads
// strips.
std::size_t tiles_per_strip(const ops::AttentionShape& shape, int threads);

std::size_t tiles_of_queries(const ops::AttentionShape& shape);

// The scratch memory of all threads, forward and backward: linear in queries and keys.
std::size_t workspace_bytes(const ops::AttentionShape& shape, int threads);

ForwardWorkspace forward_workspace(const ops::AttentionShape& shape, int threads, int thread,
                                   std::byte* scratch);
RowWorkspace row_workspace(const ops::AttentionShape& shape, int threads, int thread,
                           std::byte* scratch);
BackwardWorkspace backward_workspace(const ops::AttentionShape& shape, int threads, int thread,
                                     std::byte* scratch);
// What all threads have together: the gradient of a bias of every tile (AttentionCall).
float* dbias_workspace(const ops::AttentionShape& shape, int threads, std::byte* scratch);

}  // namespace lockstep::cpu
