// The initial values of parameters.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/nn/block.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

// Fills a parameter on any device, or a part of it that begins at element `first`.
// Element i is a pure function of seed, name and i, the same on any number of threads. In a 16-bit
// type it is the rounded f32 value.
void fill_initial(const Tensor& part, const Initial& initial, std::uint64_t seed,
                  std::string_view name, int threads, std::size_t first = 0);

}  // namespace lockstep::nn
