// Instruction sets that the kernels are compiled for; which of them runs is decided at run time.
//
// A kernel is written once, over vectors (vector.inl), in NAME.inl; NAME_neon.cpp, NAME_avx2.cpp,
// NAME_avx512.cpp and NAME_scalar.cpp each compile it for one instruction set and export one table
// of functions, and NAME.cpp picks the table of the Isa it is given. kAmx is kAvx512 with tiles,
// which multiply matrices of bf16 (gemm/tiles.h); all else it does as kAvx512.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::cpu {

enum class Isa : std::uint8_t { kScalar, kNeon, kAvx2, kAvx512, kAmx };

std::string_view name(Isa isa);

// Those that this CPU has, best first; kScalar is always among them.
std::vector<Isa> available_isas();

// Whether this CPU has tiles and Linux lets the process use them: it lends them only to who asks.
bool has_tiles();

// The best one, or the one that LOCKSTEP_KERNELS names (kNeon for "neon16", which only reductions
// know); Error(kUnsupported) where this CPU does not have it.
Isa chosen_isa();

}  // namespace lockstep::cpu
