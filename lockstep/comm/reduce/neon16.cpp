#if defined(__aarch64__)
#define LOCKSTEP_ISA neon16
#include "lockstep/comm/reduce/kernels.inl"
#endif
