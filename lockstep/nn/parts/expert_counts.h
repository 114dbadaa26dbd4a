// How many tokens the experts of a model get in a micro-batch, for the loss that balances them.
//
// Hugging Face's MixtralForCausalLM has one such loss for a whole model:
//
//   E sum over experts e of f(e) p(e)
//
// f(e) is the part of all tokens of all layers that goes to e, p(e) the mean over them of the
// softmax of all logits of the router. So the gradient in any layer needs the counts of all layers.
// They travel as the memory of the model does (nn/block.h): the embedding begins with zeros, each
// layer adds its own in forward, and the head hands the sums back as the "gradient" of the memory,
// which layers read in backward. A pipeline sends both along.
//
// A memory is of the compute type. The counts are the bits of i32 in it.
#pragma once

#include <cstdint>

#include "lockstep/nn/block.h"

namespace lockstep::nn {

// Entries: the tokens of every expert, then the targets of the micro-batch, which the head adds.
inline Shape counts_shape(std::int64_t experts, DType dtype) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const auto bytes = (experts + 1) * static_cast<std::int64_t>(sizeof(std::int32_t));
  return {(bytes + size - 1) / size};
}

inline Tensor counts_in(const Tensor& memory, std::int64_t experts) {
  return {memory.data(), DType::kI32, {experts + 1}, memory.device()};
}

}  // namespace lockstep::nn
