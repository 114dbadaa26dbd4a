// Steps of optimizers, sums of squares and clipping on a GPU.
#pragma once

#include <cstddef>

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/optimizer_arguments.h"

namespace lockstep::cuda {

// ---- steps

// A step whose gradient_scale is NaN changes nothing.
void run(const Context& context, const ops::Adam& call);
void run(const Context& context, const ops::Sgd& call);

void run(const Context& context, const ops::AdamSegments& call);

// ---- norms of gradients

void run(const Context& context, const ops::SumOfSquares& call);

// Uses up to squares_scratch() bytes of context.workspace; with less it needs more launches.
void run(const Context& context, const ops::ChunkedSumOfSquares& call);
std::size_t squares_scratch(std::size_t elements, std::size_t chunk_elements);

// Sums squares in runs of 64, each run in order, and then the runs in order.
void run(const Context& context, const ops::ClipScale& call);

}  // namespace lockstep::cuda
