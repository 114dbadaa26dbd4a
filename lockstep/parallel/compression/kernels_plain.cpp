#define LOCKSTEP_SET plain
#include "lockstep/parallel/compression/kernels.inl"
