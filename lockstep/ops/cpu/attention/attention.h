// Attention in blocks of queries and keys: online softmax along the keys with a running maximum and
// sum; backward recomputes the probabilities from the kept log-sum-exp. So no matrix of queries x
// keys ever exists.
#pragma once

#include <cstddef>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cpu/team/cpu.h"

namespace lockstep::cpu {

void run(const Cpu& cpu, const ops::Attention& call, std::byte* scratch);
void run(const Cpu& cpu, const ops::AttentionBackward& call, std::byte* scratch);
// The same with kernels of one's choice, which the CPU must have.
struct AttentionKernels;
void run(const Cpu& cpu, const AttentionKernels& kernels, const ops::Attention& call,
         std::byte* scratch);
void run(const Cpu& cpu, const AttentionKernels& kernels, const ops::AttentionBackward& call,
         std::byte* scratch);

std::size_t attention_scratch(const Cpu& cpu, const ops::AttentionShape& shape);

}  // namespace lockstep::cpu
