#if defined(__x86_64__)
#define LOCKSTEP_ISA amx
#include "lockstep/ops/cpu/gemm/tiles/tiles.inl"
#include "lockstep/ops/cpu/gemm/tiles/unit_amx.inl"

namespace lockstep::cpu::gemm {

const TileKernels kAmxTiles = cpu::amx::make_tile_kernels<cpu::amx::TileUnit>();

}  // namespace lockstep::cpu::gemm
#endif
