// Optimizers, each in one pass over memory, and the norm that clipping needs.
#pragma once

#include "lockstep/ops/cpu/team/cpu.h"
#include "lockstep/ops/optimizer_arguments.h"

namespace lockstep::cpu {

void run(const Cpu& cpu, const ops::Adam& call);
void run(const Cpu& cpu, const ops::Sgd& call);
void run(const Cpu& cpu, const ops::SumOfSquares& call);

}  // namespace lockstep::cpu
