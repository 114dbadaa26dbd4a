#if defined(__aarch64__)
#define LOCKSTEP_ISA neon
#include "lockstep/ops/cpu/gemm/kernels.inl"

namespace lockstep::cpu::gemm::neon {

// 24 of the 32 registers hold the tile, 3 the step's columns and 2 its rows.
const Kernels product_kernels = cpu::neon::make_kernels<8, 3>();

}  // namespace lockstep::cpu::gemm::neon
#endif
