// Embedding lookup and its backward.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cpu/team/cpu.h"

namespace lockstep::cpu {

void run(const Cpu& cpu, const ops::Embedding& call);
void run(const Cpu& cpu, const ops::EmbeddingBackward& call);

}  // namespace lockstep::cpu
