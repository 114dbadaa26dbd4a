#if defined(__x86_64__)
#define LOCKSTEP_ISA avx2
#include "lockstep/ops/cpu/attention/attention.inl"
#endif
