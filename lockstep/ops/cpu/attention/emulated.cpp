#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/attention/squares_backward.inl"
#include "lockstep/ops/cpu/attention/squares_forward.inl"
#include "lockstep/ops/cpu/gemm/tiles/unit_emulated.inl"

namespace lockstep::cpu {
namespace {

void forward(const AttentionCall& call, const QueryStrip& strip,
             const ForwardWorkspace& workspace) {
  if (!fits_squares(call)) return scalar::attention_kernels.forward(call, strip, workspace);
  scalar::SquaresForward<scalar::TileUnit>(call, strip, workspace).run();
}

void backward(const AttentionCall& call, const BackwardPart& part,
              const BackwardWorkspace& workspace) {
  if (!fits_squares(call)) return scalar::attention_kernels.backward(call, part, workspace);
  scalar::SquaresBackward<scalar::TileUnit>(call, part, workspace).run();
}

void row(const AttentionCall& call, std::size_t sequence, std::size_t head,
         const RowWorkspace& workspace) {
  scalar::attention_kernels.row(call, sequence, head, workspace);
}

}  // namespace

const AttentionKernels kAttentionEmulated = {forward, backward, row};

}  // namespace lockstep::cpu
