// Losses with their gradients, in one pass over a row that stays in cache.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cpu/team/cpu.h"

namespace lockstep::cpu {

void run(const Cpu& cpu, const ops::LogitStatistics& call);
void run(const Cpu& cpu, const ops::CrossEntropy& call);
void run(const Cpu& cpu, const ops::SquaredError& call);

}  // namespace lockstep::cpu
