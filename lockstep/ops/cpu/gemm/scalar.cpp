#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/gemm/kernels.inl"

namespace lockstep::cpu::gemm::scalar {

// Half of 16 registers of SSE2 hold the tile.
const Kernels product_kernels = cpu::scalar::make_kernels<4, 2>();

}  // namespace lockstep::cpu::gemm::scalar
