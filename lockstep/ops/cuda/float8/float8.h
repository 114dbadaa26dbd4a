// FP8 on a GPU: quantizes tensors and updates scales. ops/cuda/linear multiplies them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/float8.h"

namespace lockstep::cuda {

// With dbias it needs quantize_bytes() of workspace.
void run(const Context& context, const ops::Quantize& call);
void run(const Context& context, const ops::UpdateScaling& call);

std::size_t quantize_bytes(std::int64_t rows, std::int64_t columns);

// A ScaledMatmul by plain loops, for products without a cuBLASLt algorithm.
void plain_scaled_matmul(const Context& context, const ops::ScaledMatmul& call);

}  // namespace lockstep::cuda
