// Attention with the tensor cores of sm_80 and later, for bf16 and f16.
//
// The structure is that of plain.h: a block of warps owns rows of one side and walks over tiles of
// the other, scores and sums stay in registers, and no matrix of scores exists. Forward owns
// queries; so does the kernel for dq; the kernel for dk and dv owns keys and makes the transposed
// scores, so that in all three the first product's result is, lane by lane, already the left side
// of the second (mma_tile.cuh). Tiles of the other side arrive in shared memory while the one
// before is worked on. Probabilities and gradients of scores are rounded to the 16-bit type before
// the second product, and all sums are f32. Exponentials are powers of 2, of scores in units of
// log 2.
//
// Heads of up to 128 elements, in multiples of 8, are filled up with zeros to 32, 64, 96 or 128.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::attention {

bool mma_accepts(const Context& context, const ops::Attention& call);
bool mma_accepts(const Context& context, const ops::AttentionBackward& call);

void run_mma(const Context& context, const ops::Attention& call);
void run_mma(const Context& context, const ops::AttentionBackward& call);

}  // namespace lockstep::cuda::attention
