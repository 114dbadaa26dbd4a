// The table of kernels that every instruction set exports, and picking one of them.
//
//   struct NormKernels { ... };                        functions, one for each compute type
//   LOCKSTEP_KERNEL_TABLE(NormKernels, norm_kernels)   neon::norm_kernels, ..., norm_kernels(isa)
#pragma once

#include <cstddef>

#include "lockstep/ops/cpu/simd/isa.h"
#include "lockstep/tensor/dtype.h"

#if defined(__aarch64__)
#define LOCKSTEP_KERNEL_TABLE(Table, table) \
  namespace scalar {                        \
  extern const Table table;                 \
  }                                         \
  namespace neon {                          \
  extern const Table table;                 \
  }                                         \
  inline const Table& table(Isa isa) { return isa == Isa::kNeon ? neon::table : scalar::table; }
#elif defined(__x86_64__)
#define LOCKSTEP_KERNEL_TABLE(Table, table)                 \
  namespace scalar {                                        \
  extern const Table table;                                 \
  }                                                         \
  namespace avx2 {                                          \
  extern const Table table;                                 \
  }                                                         \
  namespace avx512 {                                        \
  extern const Table table;                                 \
  }                                                         \
  inline const Table& table(Isa isa) {                      \
    if (isa == Isa::kAmx) return avx512::table;             \
    if (isa == Isa::kAvx512) return avx512::table;          \
    return isa == Isa::kAvx2 ? avx2::table : scalar::table; \
  }
#else
#define LOCKSTEP_KERNEL_TABLE(Table, table) \
  namespace scalar {                        \
  extern const Table table;                 \
  }                                         \
  inline const Table& table(Isa) { return scalar::table; }
#endif

namespace lockstep::cpu {

// A kernel for each compute type: f32, bf16, f16.
template <class Function>
struct PerType {
  Function f32;
  Function bf16;
  Function f16;

  Function operator[](DType dtype) const {
    return dtype == DType::kF32 ? f32 : dtype == DType::kBF16 ? bf16 : f16;
  }
};

}  // namespace lockstep::cpu
