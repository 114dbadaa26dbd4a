#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/loss/loss.inl"
