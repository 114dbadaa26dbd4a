#if defined(__x86_64__)
#define LOCKSTEP_ISA avx2
#include "lockstep/ops/cpu/attention/attention.inl"

namespace lockstep::cpu {

const AttentionKernels kAttentionAvx2 = avx2::kKernels;

}  // namespace lockstep::cpu
#endif
