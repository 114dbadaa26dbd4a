#if defined(__aarch64__)
#define LOCKSTEP_ISA neon
#include "lockstep/ops/cpu/loss/loss.inl"
#endif
