#if defined(__aarch64__)
#define LOCKSTEP_ISA neon
#include "lockstep/parallel/compression/kernels/kernels.inl"
#endif
