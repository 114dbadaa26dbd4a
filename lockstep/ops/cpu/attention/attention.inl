// Attention's kernels for the instruction set of the file that includes this (vector.inl).
#pragma once

#include "lockstep/ops/cpu/attention/backward.inl"
#include "lockstep/ops/cpu/attention/forward.inl"
#include "lockstep/ops/cpu/attention/row.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

void attention_forward(const AttentionCall& call, const QueryStrip& strip,
                       const ForwardRoom& room) {
  switch (call.dtype) {
    case DType::kBF16:
      return ForwardStrip<BFloat16>(call, strip, room).run();
    case DType::kF16:
      return ForwardStrip<Half>(call, strip, room).run();
    default:
      return ForwardStrip<float>(call, strip, room).run();
  }
}

void attention_backward(const AttentionCall& call, const BackwardPart& part,
                        const BackwardRoom& room) {
  switch (call.dtype) {
    case DType::kBF16:
      return BackwardHead<BFloat16>(call, part, room).run();
    case DType::kF16:
      return BackwardHead<Half>(call, part, room).run();
    default:
      return BackwardHead<float>(call, part, room).run();
  }
}

void attention_row(const AttentionCall& call, std::size_t sequence, std::size_t head,
                   const RowRoom& room) {
  switch (call.dtype) {
    case DType::kBF16:
      return AttentionRow<BFloat16>(call, sequence, head, room).run();
    case DType::kF16:
      return AttentionRow<Half>(call, sequence, head, room).run();
    default:
      return AttentionRow<float>(call, sequence, head, room).run();
  }
}

}  // namespace

const AttentionKernels attention_kernels = {attention_forward, attention_backward, attention_row};

}  // namespace lockstep::cpu::LOCKSTEP_ISA
