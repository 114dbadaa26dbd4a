// Tensor maps: what the copy engine knows of a tensor in device memory.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::hopper {

// Heads as a tensor of the dimensions head_size, heads, sequence, batch, fastest first. A copy
// moves a box of 64 elements of one head in `box_rows` rows of one sequence, swizzled in shared
// memory.
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

// What both directions ask of chip, shape and types.
bool is_supported(const Context& context, const ops::AttentionShape& shape);

}  // namespace lockstep::cuda::hopper
