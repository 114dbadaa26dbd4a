// The peak multiply-add rate of this machine from registers: the limit of matrix products.
#pragma once

#include <string>

#include "lockstep/tensor/dtype.h"

namespace lockstep::bench {

struct Peak {
  int threads = 0;
  std::string instruction;
  double flops = 0;  // per second, of all threads together
};

// The best of several passes; takes a fifth of a second.
Peak measure_peak(DType dtype, int threads);

}  // namespace lockstep::bench
