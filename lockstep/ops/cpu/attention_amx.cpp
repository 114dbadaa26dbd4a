#if defined(__x86_64__)
#define LOCKSTEP_ISA amx
#include "lockstep/ops/cpu/attention_squares_backward.inl"
#include "lockstep/ops/cpu/attention_squares_forward.inl"
#include "lockstep/ops/cpu/gemm/tile_unit_amx.inl"

namespace lockstep::cpu {
namespace {

void forward(const AttentionCall& call, const QueryStrip& strip, const ForwardRoom& room) {
  if (!fits_squares(call)) return kAttentionAvx512.forward(call, strip, room);
  amx::SquaresForward<amx::TileUnit>(call, strip, room).run();
}

void backward(const AttentionCall& call, const BackwardPart& part, const BackwardRoom& room) {
  if (!fits_squares(call)) return kAttentionAvx512.backward(call, part, room);
  amx::SquaresBackward<amx::TileUnit>(call, part, room).run();
}

}  // namespace

const AttentionKernels kAttentionAmx = {forward, backward};

}  // namespace lockstep::cpu
#endif
