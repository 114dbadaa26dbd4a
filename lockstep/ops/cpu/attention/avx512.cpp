#if defined(__x86_64__)
#define LOCKSTEP_ISA avx512
#include "lockstep/ops/cpu/attention/attention.inl"

namespace lockstep::cpu {

const AttentionKernels kAttentionAvx512 = avx512::kKernels;

}  // namespace lockstep::cpu
#endif
