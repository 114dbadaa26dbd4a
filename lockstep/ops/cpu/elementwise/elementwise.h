// Operations that go through memory once, element by element.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cpu/team/cpu.h"

namespace lockstep::cpu {

void run(const Cpu& cpu, const ops::Activate& call);
void run(const Cpu& cpu, const ops::Multiply& call);
void run(const Cpu& cpu, const ops::Add& call);
void run(const Cpu& cpu, const ops::SwiGlu& call);
void run(const Cpu& cpu, const ops::SwiGluBackward& call);
void run(const Cpu& cpu, const ops::Drop& call);
void run(const Cpu& cpu, const ops::Cast& call);
void run(const Cpu& cpu, const ops::Scale& call);
void run(const Cpu& cpu, const ops::Rotary& call);

}  // namespace lockstep::cpu
