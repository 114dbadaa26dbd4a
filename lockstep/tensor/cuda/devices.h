// The GPUs of this machine, looked at once.
#pragma once

#include <string>
#include <vector>

#include "lockstep/tensor/cuda.h"

namespace lockstep::cuda {

struct Devices {
  std::vector<GpuInfo> all;
  std::string problem;  // why none can be used; empty where one can
};

const Devices& devices();
// Why this one cannot be used; empty where it can.
std::string problem_of(int index);

// "13.0" of 13000.
std::string version_text(int version);

// Makes it the one that the calling thread's next CUDA calls are about. Never set back: going back
// to a GPU that nobody uses would take memory there.
void use_device(int index);

}  // namespace lockstep::cuda
