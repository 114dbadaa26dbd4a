#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/gemm/few_rows/few_rows.inl"
