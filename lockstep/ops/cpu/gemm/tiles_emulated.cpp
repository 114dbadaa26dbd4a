#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/gemm/tile_unit_emulated.inl"
#include "lockstep/ops/cpu/gemm/tiles.inl"

namespace lockstep::cpu::gemm {

const TileKernels kEmulatedTiles = scalar::make_tile_kernels<scalar::TileUnit>();

}  // namespace lockstep::cpu::gemm
