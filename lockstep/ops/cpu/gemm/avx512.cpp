#if defined(__x86_64__)
#define LOCKSTEP_ISA avx512
#include "lockstep/ops/cpu/gemm/kernels.inl"

namespace lockstep::cpu::gemm::avx512 {

// 28 of the 32 registers hold the tile, 2 the step's columns.
const Kernels product_kernels = cpu::avx512::make_kernels<14, 2>();

}  // namespace lockstep::cpu::gemm::avx512
#endif
