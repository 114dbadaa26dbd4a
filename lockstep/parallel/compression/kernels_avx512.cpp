#if defined(__x86_64__)
#define LOCKSTEP_SET avx512
#include "lockstep/parallel/compression/kernels.inl"
#endif
