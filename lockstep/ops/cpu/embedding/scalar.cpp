#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/embedding/embedding.inl"
