#include "lockstep/ops/cpu/gemm/kernels.h"

namespace lockstep::cpu::gemm {

const Kernels& kernels_of(Isa isa) {
  switch (isa) {
#if defined(__aarch64__)
    case Isa::kNeon:
      return kNeonKernels;
#elif defined(__x86_64__)
    case Isa::kAmx:
    case Isa::kAvx512:
      return kAvx512Kernels;
    case Isa::kAvx2:
      return kAvx2Kernels;
#endif
    default:
      return kScalarKernels;
  }
}

}  // namespace lockstep::cpu::gemm
