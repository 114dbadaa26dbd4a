// Embedding on a GPU: rows of tables by index, and their gradients.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

// An index outside its table goes to context.faults, and its row becomes zero.
void run(const Context& context, const ops::Embedding& call);

// Takes embedding_scratch() bytes of context.workspace. A row whose index lies outside the table
// goes to context.faults and is left out.
void run(const Context& context, const ops::EmbeddingBackward& call);
std::size_t embedding_scratch(std::int64_t rows, std::int64_t width);

}  // namespace lockstep::cuda
