// Operations that go through memory once, element by element.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cpu/team/cpu.h"
#include "lockstep/ops/routing.h"

namespace lockstep::cpu {

void run(const Cpu& cpu, const ops::Activate& call);
void run(const Cpu& cpu, const ops::Multiply& call);
void run(const Cpu& cpu, const ops::Add& call);
void run(const Cpu& cpu, const ops::SwiGlu& call);
void run(const Cpu& cpu, const ops::SwiGluBackward& call);
void run(const Cpu& cpu, const ops::Drop& call);
void run(const Cpu& cpu, const ops::Cast& call);
void run(const Cpu& cpu, const ops::Scale& call);
void run(const Cpu& cpu, const ops::SoftCap& call);
void run(const Cpu& cpu, const ops::Rotary& call);
void run(const Cpu& cpu, const ops::CopyColumns& call);
void run(const Cpu& cpu, const ops::MergeAttention& call);
void run(const Cpu& cpu, const ops::Route& call);
void run(const Cpu& cpu, const ops::RouteBackward& call);
void run(const Cpu& cpu, const ops::GatherTokens& call);
void run(const Cpu& cpu, const ops::CombineTokens& call);
void run(const Cpu& cpu, const ops::WeightRows& call);

}  // namespace lockstep::cpu
