#if defined(__aarch64__)
#define LOCKSTEP_ISA neon
#include "lockstep/ops/cpu/attention/attention.inl"
#endif
