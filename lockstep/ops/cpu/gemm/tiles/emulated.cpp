#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/gemm/tiles/tiles.inl"
#include "lockstep/ops/cpu/gemm/tiles/unit_emulated.inl"

namespace lockstep::cpu::gemm {

const TileKernels kEmulatedTiles = cpu::scalar::make_tile_kernels<cpu::scalar::TileUnit>();

}  // namespace lockstep::cpu::gemm
