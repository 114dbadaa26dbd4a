// The GPUs of this machine, detected once.
#pragma once

#include <string>
#include <vector>

#include "lockstep/tensor/cuda.h"

namespace lockstep::cuda {

struct Devices {
  std::vector<GpuInfo> all;
  std::string problem;  // why no GPU can be used; empty if one can
};

const Devices& devices();

// Whether NVIDIA's multi-process service runs here: it lets kernels of several processes run at the
// same time.
bool mps_runs();
// Why this GPU cannot be used; empty if it can.
std::string problem_of(int index);

// "13.0" of 13000.
std::string version_text(int version);

// Makes it the current device of the calling thread. It is never reset: switching back to an unused
// GPU would allocate memory there.
void use_device(int index);

}  // namespace lockstep::cuda
