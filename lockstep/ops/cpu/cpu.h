// What every kernel of the CPU works with.
#pragma once

#include "lockstep/ops/cpu/isa.h"
#include "lockstep/ops/cpu/team.h"

namespace lockstep::cpu {

struct Cpu {
  ThreadTeam& team;
  Isa isa = Isa::kScalar;
};

}  // namespace lockstep::cpu
