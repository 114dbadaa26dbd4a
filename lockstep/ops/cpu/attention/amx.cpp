#if defined(__x86_64__)
#define LOCKSTEP_ISA amx
#include "lockstep/ops/cpu/attention/squares_backward.inl"
#include "lockstep/ops/cpu/attention/squares_forward.inl"
#include "lockstep/ops/cpu/gemm/tiles/unit_amx.inl"

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

void row(const AttentionCall& call, std::size_t sequence, std::size_t head, const RowRoom& room) {
  kAttentionAvx512.row(call, sequence, head, room);
}

}  // namespace

const AttentionKernels kAttentionAmx = {forward, backward, row};

}  // namespace lockstep::cpu
#endif
