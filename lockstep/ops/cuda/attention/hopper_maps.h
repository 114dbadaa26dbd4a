// Tensor maps: descriptions of tensors in device memory for the copy engine.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::hopper {

// Heads as a tensor with the dimensions head_size, heads, sequence, batch, the fastest first. A
// copy moves a box of 64 elements of one head in `box_rows` rows of one sequence, and swizzles it
// in shared memory.
struct HeadsMap {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  int box_rows = 0;
};
CUtensorMap make_map(const ops::Heads& heads, const HeadsMap& layout);

// Whether the copy engine can address them.
bool is_mappable(const ops::Heads& heads);

// What forward and backward both require of the GPU, the shape and the types.
bool is_supported(const Context& context, const ops::AttentionShape& shape);

}  // namespace lockstep::cuda::hopper
