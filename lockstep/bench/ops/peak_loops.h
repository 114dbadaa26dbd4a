// Loops that multiply and add as fast as the CPU can, from registers alone.
#pragma once

#include <string_view>

#include "lockstep/tensor/dtype.h"

namespace lockstep::bench {

struct PeakLoop {
  std::string_view instruction;        // "neon fma", "amx bf16"
  void (*run)(long rounds) = nullptr;  // on the calling thread
  double flops_per_round = 0;
};

// The fastest that this CPU has for products of the type with sums in f32.
PeakLoop peak_loop(DType dtype);

}  // namespace lockstep::bench
