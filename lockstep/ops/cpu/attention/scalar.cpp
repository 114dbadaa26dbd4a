#define LOCKSTEP_ISA scalar
#include "lockstep/ops/cpu/attention/attention.inl"

namespace lockstep::cpu {

const AttentionKernels kAttentionScalar = scalar::kKernels;

}  // namespace lockstep::cpu
