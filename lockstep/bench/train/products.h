// The matrix products of a model's linear layers alone: how fast a step could be if it were nothing
// else.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/nn/block.h"
#include "lockstep/ops/ops.h"
#include "lockstep/plan/model_shape.h"

namespace lockstep::bench {

struct Product {
  LinearShape shape;
  double count = 0;  // how often a micro-batch does it, forward; backward does it twice
};

// Those of one micro-batch (source and target of an encoder-decoder are as long): layers and
// logits, in the chunks in which they are computed.
std::vector<Product> products_of(const plan::ModelShape& shape, const nn::Setup& setup);

// FLOPs per second over all of them, each timed once forward and once for each gradient, and
// weighted with its count.
double measure_products(const std::vector<Product>& products, Ops& ops);

}  // namespace lockstep::bench
