// Attention with the tensor cores of sm_80 and later, for bf16 and f16.
//
// The structure is that of plain.h: a block of warps owns rows of one side and walks over tiles of
// the other, scores and sums stay in registers, and no matrix of scores exists. Forward and the
// kernel for dq own queries. The kernel for dk and dv owns keys and computes the transposed scores.
// So in all three the result of the first product is, lane by lane, the left operand of the second
// (mma_tile.cuh). The next tile of the other side arrives in shared memory while the current one is
// used. Probabilities and gradients of scores are rounded to the 16-bit type before the second
// product, and all sums are f32. Exponentials are powers of 2 of scores in units of log 2.
//
// Biases by distance are added to the products before the softmax (mma_bias.cuh).
//
// Heads have up to 128 elements, a multiple of 8, and are padded with zeros to 32, 64, 96 or 128.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::attention {

bool mma_accepts(const Context& context, const ops::Attention& call);
bool mma_accepts(const Context& context, const ops::AttentionBackward& call);

void run_mma(const Context& context, const ops::Attention& call);
void run_mma(const Context& context, const ops::AttentionBackward& call);

}  // namespace lockstep::cuda::attention
