#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/attention/squares_backward.inl"
#include "lockstep/ops/cpu/attention/squares_forward.inl"
#include "lockstep/ops/cpu/gemm/tiles/unit_emulated.inl"

namespace lockstep::cpu {
namespace {

void forward(const AttentionCall& call, const QueryStrip& strip, const ForwardRoom& room) {
  if (!fits_squares(call)) return scalar::attention_kernels.forward(call, strip, room);
  scalar::SquaresForward<scalar::TileUnit>(call, strip, room).run();
}

void backward(const AttentionCall& call, const BackwardPart& part, const BackwardRoom& room) {
  if (!fits_squares(call)) return scalar::attention_kernels.backward(call, part, room);
  scalar::SquaresBackward<scalar::TileUnit>(call, part, room).run();
}

void row(const AttentionCall& call, std::size_t sequence, std::size_t head, const RowRoom& room) {
  scalar::attention_kernels.row(call, sequence, head, room);
}

}  // namespace

const AttentionKernels kAttentionEmulated = {forward, backward, row};

}  // namespace lockstep::cpu
