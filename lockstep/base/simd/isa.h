// Instruction sets that kernels are compiled for, and the one that this process runs.
//
// kernel_table.h says how a kernel is compiled for several of them and picked at run time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// kNeon16 is kNeon with instructions for 16-bit floats (FEAT_BF16, FEAT_FHM) and atomic operations
// (FEAT_LSE); kAmx is kAvx512 with tiles, which multiply matrices of bf16.
enum class Isa : std::uint8_t { kScalar, kNeon, kNeon16, kAvx2, kAvx512, kAmx };

std::string_view name(Isa isa);

// The instruction set that `isa` extends: its kernels run where there are none for `isa` itself.
// kNeon of kNeon16, kAvx512 of kAmx; each other one itself.
constexpr Isa base_isa(Isa isa) {
  if (isa == Isa::kNeon16) return Isa::kNeon;
  return isa == Isa::kAmx ? Isa::kAvx512 : isa;
}

// Those that this CPU has, best first; kScalar is always the last.
const std::vector<Isa>& available_isas();
std::string available_isa_names();  // "avx512, avx2, scalar"

// The one of this name; Error(kUnsupported) where this CPU does not have it.
Isa find_isa(std::string_view name);

// The instruction set that reductions, codecs and operations use: the best one, or the one that
// LOCKSTEP_KERNELS names. The first call throws Error(kUnsupported) if this CPU does not have it.
// Thread-safe.
Isa chosen_isa();

// Chooses another one of available_isas(), for tests and benchmarks. Not thread-safe; operations
// that exist (make_cpu_ops) keep theirs.
void choose_isa(Isa isa);

}  // namespace lockstep
