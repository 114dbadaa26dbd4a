#if defined(__x86_64__)
#define LOCKSTEP_SET avx2
#include "lockstep/parallel/compression/kernels.inl"
#endif
