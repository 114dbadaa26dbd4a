// How a kernel is compiled for several instruction sets and picked at run time.
//
// A kernel is written once, over vectors (vector.inl), in an .inl file. Its folder has one source
// file for each instruction set, named after it: scalar.cpp, neon.cpp, avx2.cpp, avx512.cpp.
// cmake/Kernels.cmake compiles each for the instruction set of its name. Such a file defines
// LOCKSTEP_ISA, includes the .inl file, and so defines one table of functions in the namespace
// LOCKSTEP_ISA. A header declares the tables:
//
//   struct NormKernels { ... };
//   LOCKSTEP_KERNEL_TABLE(NormKernels, norm_kernels)
//
// declares scalar::norm_kernels, avx2::norm_kernels and so on, and norm_kernels(isa), which gives
// the table of `isa` or of the instruction set that it extends (base_isa).
// LOCKSTEP_KERNEL_TABLE_NEON16 and LOCKSTEP_KERNEL_TABLE_AMX declare one more table, of neon16.cpp
// or amx.cpp.
#pragma once

#include "lockstep/base/simd/isa.h"

#define LOCKSTEP_DECLARE_TABLE(Table, table, isa) \
  namespace isa {                                 \
  extern const Table table;                       \
  }

#if defined(__aarch64__)

#define LOCKSTEP_KERNEL_TABLE(Table, table)                           \
  LOCKSTEP_DECLARE_TABLE(Table, table, scalar)                        \
  LOCKSTEP_DECLARE_TABLE(Table, table, neon)                          \
  inline const Table& table(Isa isa) {                                \
    return base_isa(isa) == Isa::kNeon ? neon::table : scalar::table; \
  }
#define LOCKSTEP_KERNEL_TABLE_NEON16(Table, table)          \
  LOCKSTEP_DECLARE_TABLE(Table, table, scalar)              \
  LOCKSTEP_DECLARE_TABLE(Table, table, neon)                \
  LOCKSTEP_DECLARE_TABLE(Table, table, neon16)              \
  inline const Table& table(Isa isa) {                      \
    if (isa == Isa::kNeon16) return neon16::table;          \
    return isa == Isa::kNeon ? neon::table : scalar::table; \
  }
#define LOCKSTEP_KERNEL_TABLE_AMX LOCKSTEP_KERNEL_TABLE

#elif defined(__x86_64__)

#define LOCKSTEP_KERNEL_TABLE(Table, table)                  \
  LOCKSTEP_DECLARE_TABLE(Table, table, scalar)               \
  LOCKSTEP_DECLARE_TABLE(Table, table, avx2)                 \
  LOCKSTEP_DECLARE_TABLE(Table, table, avx512)               \
  inline const Table& table(Isa isa) {                       \
    if (base_isa(isa) == Isa::kAvx512) return avx512::table; \
    return isa == Isa::kAvx2 ? avx2::table : scalar::table;  \
  }
#define LOCKSTEP_KERNEL_TABLE_AMX(Table, table)             \
  LOCKSTEP_DECLARE_TABLE(Table, table, scalar)              \
  LOCKSTEP_DECLARE_TABLE(Table, table, avx2)                \
  LOCKSTEP_DECLARE_TABLE(Table, table, avx512)              \
  LOCKSTEP_DECLARE_TABLE(Table, table, amx)                 \
  inline const Table& table(Isa isa) {                      \
    if (isa == Isa::kAmx) return amx::table;                \
    if (isa == Isa::kAvx512) return avx512::table;          \
    return isa == Isa::kAvx2 ? avx2::table : scalar::table; \
  }
#define LOCKSTEP_KERNEL_TABLE_NEON16 LOCKSTEP_KERNEL_TABLE

#else

#define LOCKSTEP_KERNEL_TABLE(Table, table)    \
  LOCKSTEP_DECLARE_TABLE(Table, table, scalar) \
  inline const Table& table(Isa) { return scalar::table; }
#define LOCKSTEP_KERNEL_TABLE_NEON16 LOCKSTEP_KERNEL_TABLE
#define LOCKSTEP_KERNEL_TABLE_AMX LOCKSTEP_KERNEL_TABLE

#endif
