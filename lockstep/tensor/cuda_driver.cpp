#include "lockstep/tensor/cuda_driver.h"

#include <dlfcn.h>

namespace lockstep {

bool has_cuda_driver() {
  static const bool kFound = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
  return kFound;
}

}  // namespace lockstep
