#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/attention/attention.inl"
