#if defined(__aarch64__)
#define LOCKSTEP_ISA neon
#include "lockstep/comm/reduce/kernels.inl"
#endif
