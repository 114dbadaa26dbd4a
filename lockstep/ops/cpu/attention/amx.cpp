#if defined(__x86_64__)
#define LOCKSTEP_ISA amx
#include "lockstep/ops/cpu/attention/squares_backward.inl"
#include "lockstep/ops/cpu/attention/squares_forward.inl"
#include "lockstep/ops/cpu/gemm/tiles/unit_amx.inl"

namespace lockstep::cpu::amx {
namespace {

void forward(const AttentionCall& call, const QueryStrip& strip,
             const ForwardWorkspace& workspace) {
  if (!fits_squares(call)) return avx512::attention_kernels.forward(call, strip, workspace);
  SquaresForward<TileUnit>(call, strip, workspace).run();
}

void backward(const AttentionCall& call, const BackwardPart& part,
              const BackwardWorkspace& workspace) {
  if (!fits_squares(call)) return avx512::attention_kernels.backward(call, part, workspace);
  SquaresBackward<TileUnit>(call, part, workspace).run();
}

void row(const AttentionCall& call, std::size_t sequence, std::size_t head,
         const RowWorkspace& workspace) {
  avx512::attention_kernels.row(call, sequence, head, workspace);
}

}  // namespace

const AttentionKernels attention_kernels = {forward, backward, row};

}  // namespace lockstep::cpu::amx
#endif
