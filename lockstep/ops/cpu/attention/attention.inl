// Attention's kernels for the instruction set of the file that includes this (vector.inl).
#pragma once

#include "lockstep/ops/cpu/attention/backward.inl"
#include "lockstep/ops/cpu/attention/forward.inl"
#include "lockstep/ops/cpu/attention/row.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

void attention_forward(const AttentionCall& call, const QueryStrip& strip,
                       const ForwardWorkspace& workspace) {
  switch (call.dtype) {
    case DType::kBF16:
      return ForwardStrip<BFloat16>(call, strip, workspace).run();
    case DType::kF16:
      return ForwardStrip<Half>(call, strip, workspace).run();
    default:
      return ForwardStrip<float>(call, strip, workspace).run();
  }
}

void attention_backward(const AttentionCall& call, const BackwardPart& part,
                        const BackwardWorkspace& workspace) {
  switch (call.dtype) {
    case DType::kBF16:
      return BackwardHead<BFloat16>(call, part, workspace).run();
    case DType::kF16:
      return BackwardHead<Half>(call, part, workspace).run();
    default:
      return BackwardHead<float>(call, part, workspace).run();
  }
}

void attention_row(const AttentionCall& call, std::size_t sequence, std::size_t head,
                   const RowWorkspace& workspace) {
  switch (call.dtype) {
    case DType::kBF16:
      return AttentionRow<BFloat16>(call, sequence, head, workspace).run();
    case DType::kF16:
      return AttentionRow<Half>(call, sequence, head, workspace).run();
    default:
      return AttentionRow<float>(call, sequence, head, workspace).run();
  }
}

}  // namespace

const AttentionKernels attention_kernels = {attention_forward, attention_backward, attention_row};

}  // namespace lockstep::cpu::LOCKSTEP_ISA
