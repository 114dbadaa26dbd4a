// Layer norm and RMS norm, fused with the residual, and the RMS norm of heads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cpu/team/cpu.h"

namespace lockstep::cpu {

void run(const Cpu& cpu, const ops::Norm& call);
// The call has been checked; `scratch` has norm_scratch() bytes.
void run(const Cpu& cpu, const ops::NormBackward& call, std::byte* scratch);
void run(const Cpu& cpu, const ops::HeadNorm& call);
// The call has been checked; `scratch` has norm_scratch() bytes for its rows of head_size.
void run(const Cpu& cpu, const ops::HeadNormBackward& call, std::byte* scratch);
std::size_t norm_scratch(const Cpu& cpu, std::int64_t rows, std::int64_t width);

}  // namespace lockstep::cpu
