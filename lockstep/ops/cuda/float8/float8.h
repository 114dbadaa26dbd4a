// Numbers of 8 bits on a GPU: quantizing and the upkeep of scales. Their products are
// ops/cuda/linear's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/float8.h"

namespace lockstep::cuda {

// With dbias the workspace has quantize_bytes().
void run(const Context& context, const ops::Quantize& call);
void run(const Context& context, const ops::UpdateScaling& call);

std::size_t quantize_bytes(std::int64_t rows, std::int64_t columns);

// A ScaledMatmul by plain loops, for what cuBLASLt has no algorithm for.
void plain_scaled_matmul(const Context& context, const ops::ScaledMatmul& call);

}  // namespace lockstep::cuda
