// T5: an encoder-decoder whose attention has biases by distance instead of positions.
//
// Blocks: "source", "encoder.bias", "encoder.0" ..., "target", "decoder.bias", "decoder.0" ...,
// "head". Both embeddings are one table, which a tied head uses too.
//
// Scores are not divided by the root of a head's width. So the weights of queries and keys begin
// smaller than others by the fourth root of that width, and those of values, which are packed with
// them, are made up for in the projection.
#pragma once

#include "lockstep/nn/models/models.h"

namespace lockstep::nn {

// Called by make_model(), which has checked the shape.
Model make_t5(const plan::ModelShape& shape, const ModelOptions& options);

}  // namespace lockstep::nn
