#if defined(__x86_64__)
#define LOCKSTEP_ISA avx512
#include "lockstep/ops/cpu/gemm/kernels.inl"

namespace lockstep::cpu::gemm {

// 28 of the 32 registers hold the tile, 2 the step's columns.
const Kernels kAvx512Kernels = avx512::make_kernels<14, 2>();

}  // namespace lockstep::cpu::gemm
#endif
