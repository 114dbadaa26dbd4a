#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/norm/norm.inl"
