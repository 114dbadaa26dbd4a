#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/optimizer/optimizer.inl"
