#if defined(__aarch64__)
#define LOCKSTEP_ISA neon
#include "lockstep/ops/cpu/gemm/few_rows/few_rows.inl"
#endif
