// Embedding on a GPU: looks up rows of tables by index, and computes their gradients.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

// An index outside its table, or of a shard outside the whole, is recorded in context.faults, and
// its row becomes zero.
void run(const Context& context, const ops::Embedding& call);

// Uses embedding_scratch() bytes of context.workspace. A row whose index is outside the table is
// recorded in context.faults and skipped.
void run(const Context& context, const ops::EmbeddingBackward& call);
std::size_t embedding_scratch(std::int64_t rows, std::int64_t width);

}  // namespace lockstep::cuda
