// Measures the matrix-product rate of this machine, to compare the rate of a step with.
//
// Both functions allocate what they need and free it, and leave the Ops without scratch memory.
#pragma once

#include <span>
#include <string>

#include "lockstep/base/system/cpu_set.h"
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

// FLOPs per second of the fastest pass of a large square layer. Takes a few tenths of a second: the
// layer grows while it is too fast to measure, up to a width of 2048 (about 100 MiB).
double measure_peak_flops(Ops& ops, DType dtype);

// What one rank measured, and what it shares with others.
struct RankPeak {
  double flops = 0;       // per second
  std::string processor;  // ranks with the same text compute on the same machine or the same GPU
  CpuSet cpus;            // that it may use; none: a GPU, all of which it takes
  int threads = 1;

  std::string text() const;
  static RankPeak parse(const std::string& text);
};
// Of this rank.
RankPeak measure_rank_peak(Ops& ops, DType dtype, int threads);

// FLOPs per second of all ranks together. The rates of ranks with a core for each thread are
// summed. Ranks that share cores, or a GPU, measure one after the other; there the fastest rate
// counts, for as many cores as there are.
double peak_of_ranks(std::span<const RankPeak> ranks);

}  // namespace lockstep::train
