// How fast this machine multiplies matrices: what the rate of a whole step is held against.
//
// Both functions allocate what they need and free it, and leave the Ops without scratch memory.
#pragma once

#include "lockstep/ops/ops.h"

namespace lockstep::train {

// FLOPs of one pass of a linear layer.
double linear_flops(const LinearShape& shape);

// Of one call each, after one that warms up.
struct LinearSeconds {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
};
LinearSeconds time_linear(const LinearShape& shape, Ops& ops);

// FLOPs per second of the fastest pass of a large square layer, in a few tenths of a second: the
// layer is made larger while that takes no time to speak of, up to a width of 2048, which takes
// some 100 MiB.
double measure_peak_flops(Ops& ops, DType dtype);

}  // namespace lockstep::train
