#if defined(__x86_64__)
#define LOCKSTEP_ISA avx512
#include "lockstep/ops/cpu/gemm/few_rows/few_rows.inl"
#endif
