// The gradient of attention's biases by distance, in two launches.
//
// The kernel that makes dq has the gradients of all scores in its registers. A strip of queries of
// a head of a sequence (a block's, or a warp's) sums them by distance into a row of the workspace
// that nobody else writes. A kernel then sums the rows of a head in their order, so no sum depends
// on timing. No matrix of scores exists.
#pragma once

#include <cstddef>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::attention {

struct BiasSums {
  float* rows = nullptr;  // [batch, heads, strips, distances]; nullptr: there is no bias
  int strips = 0;         // of a head of a sequence
};

// The least queries of a strip but the last, and the most strips of a block.
inline constexpr int kStripQueries = 32;
inline constexpr int kBlockStrips = 4;

// Bytes of workspace for rows of any implementation, behind the statistics.
std::size_t bias_sums_bytes(const ops::AttentionShape& shape);

// Rows in the workspace for that many strips; their elements are not set.
BiasSums bias_sums(const Context& context, const ops::AttentionBackward& call, int strips);

// dbias = the sums of the rows, where there is a bias.
void merge_bias_sums(const Context& context, const ops::AttentionBackward& call,
                     const BiasSums& sums);

}  // namespace lockstep::cuda::attention
