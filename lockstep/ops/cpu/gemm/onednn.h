// Matrix products by oneDNN, Intel's library, where it is faster than what we have: bf16 on CPUs
// that multiply it but have no tiles (tiled.h), f32 on x86 without AVX-512.
#pragma once

#include <memory>

#include "lockstep/ops/cpu/gemm/implementation.h"

namespace lockstep::cpu::gemm {

// Null where lockstep was built without oneDNN's headers, the library is not installed, or the
// environment says LOCKSTEP_ONEDNN=0.
std::unique_ptr<Implementation> make_onednn(const Cpu& cpu);

}  // namespace lockstep::cpu::gemm
