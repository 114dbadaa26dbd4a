#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/elementwise/elementwise.inl"
