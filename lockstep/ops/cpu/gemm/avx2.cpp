#if defined(__x86_64__)
#define LOCKSTEP_ISA avx2
#include "lockstep/ops/cpu/gemm/kernels.inl"

namespace lockstep::cpu::gemm::avx2 {

// 12 of the 16 registers hold the tile, 2 the step's columns and 1 a row's element.
const Kernels product_kernels = cpu::avx2::make_kernels<6, 2>();

}  // namespace lockstep::cpu::gemm::avx2
#endif
