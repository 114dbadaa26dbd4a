#define LOCKSTEP_ISA scalar
#include "lockstep/parallel/compression/kernels/kernels.inl"
