// The context of all CPU kernels.
#pragma once

#include "lockstep/base/simd/isa.h"
#include "lockstep/ops/cpu/team/team.h"

namespace lockstep::cpu {

struct Cpu {
  ThreadTeam& team;
  Isa isa = Isa::kScalar;
};

}  // namespace lockstep::cpu
