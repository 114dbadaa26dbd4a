// NVIDIA's driver, found without the CUDA module (tensor/cuda.h): loading that takes 100 MB of
// memory and some time in every process, in vain where there is no driver.
#pragma once

namespace lockstep {

// Whether the driver's library can be loaded, as CUDA itself would load it. It may still be too old
// or have no GPU.
bool has_cuda_driver();

}  // namespace lockstep
